"""Small training scripts, each with one thing that its forward changes: a list, a counter, a tensor, an object.

DataParallel's replicas share what attributes refer to, and lose what is set on themselves; ranks do neither. So each of
these is converted to something that trains the same, or it is a hazard: tests/codemod/test_forward_mutations.py. All
are forwards/bases/net.py with a small change: those of forwards/*.diff, and two tables here.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.diffs import Script, cases, scripts

FOLDER = Path(__file__).with_name("forwards")
NET = scripts(FOLDER / "cases.diff")["bases/net"]
LAYER = "        self.fc = nn.Linear(4, 3)\n"
FORWARD = "        scale = 1.0\n"
ABOVE = "np.random.seed(0)\n"


def net_with(name: str, forward: str, made: str = "", above: str = "") -> Script:
    """The net whose `self.s` is what is made, with these lines for its scale, and these above it."""
    body = NET.body.replace(FORWARD, textwrap.indent(f"{forward}\n", "        "))
    body = body.replace(LAYER, f"{LAYER}        self.s = {made}\n" if made else LAYER)
    return Script(name, NET.name, "", body.replace(ABOVE, ABOVE + above))


NUMBERS = "[1.0 + 0.1 * i for i in range(20)]"
PAIRS = "{i: 1.0 + 0.1 * i for i in range(20)}"
TAKEN = {  # how a forward may take, or look, what another forward has changed: what it is made of, and the lines
    "dict_popitem": (PAIRS, "_, scale = self.s.popitem()"),
    "dict_pop": (PAIRS, "scale = self.s.pop(min(self.s))"),
    "dict_del": (PAIRS, "key = max(self.s)\nscale = self.s[key]\ndel self.s[key]"),
    "dict_item": ("{'n': 0}", "self.s['n'] += 1\nscale = 1 / self.s['n']"),
    "dict_update": ("{'n': 1.0}", "scale = self.s['n']\nself.s.update(n=scale + 0.5)"),
    "dict_setdefault": ("{}", "scale = 1.0 + self.s.setdefault('first', float(x.detach().sum()))"),
    "dict_clear": (PAIRS, "scale = 1.0 + len(self.s)\nself.s.clear()"),
    "dict_or": ("{0: 1.0}", "scale = 1.0 / len(self.s)\nself.s |= {len(self.s): 1.0}"),
    "list_append": ("[]", "self.s.append(1)\nscale = 1.0 / len(self.s)"),
    "list_pop": (NUMBERS, "scale = self.s.pop()"),
    "list_pop_in_call": (NUMBERS, "scale = min(self.s.pop(), 2.0)"),
    "list_pop_walrus": (NUMBERS, "if (scale := self.s.pop()) > 2.0:\n    scale = 2.0"),
    "list_remove": (NUMBERS, "scale = self.s[0]\nself.s.remove(scale)"),
    "list_sort": ("[3.0, 1.0, 2.0]", "scale = self.s[0]\nself.s.sort()"),
    "list_reverse": ("[3.0, 1.0, 2.0]", "scale = self.s[0]\nself.s.reverse()"),
    "list_insert": ("[1.0]", "scale = self.s[0]\nself.s.insert(0, scale + 1)"),
    "list_extend": ("[1.0]", "scale = 1.0 / len(self.s)\nself.s.extend([1.0])"),
    "list_item": ("[1.0, 2.0]", "self.s[0] = self.s[0] + 1\nscale = self.s[0]"),
    "list_slice": (NUMBERS, "scale = self.s[0]\nself.s[:] = self.s[1:]"),
    "list_plus": ("[1.0]", "scale = 1.0 / len(self.s)\nself.s += [1.0]"),
    "list_unpacked": ("[1.0, 2.0]", "scale, self.s[0] = self.s[0], self.s[0] + 1"),
    "list_by_class": ("[]", "list.append(self.s, 1)\nscale = 1.0 / len(self.s)"),
    "list_bound_method": ("[]", "add = self.s.append\nadd(1)\nscale = 1.0 / len(self.s)"),
    "list_mapped": ("[]", "list(map(self.s.append, [1, 2]))\nscale = 1.0 / len(self.s)"),
    "list_for_target": ("[0.0, 0.0]", "scale = 1.0 + self.s[0]\nfor self.s[0] in range(int(scale) + 1):\n    pass"),
    "set_add": ("set()", "self.s.add(len(self.s))\nscale = 1.0 / len(self.s)"),
    "set_discard": ("set(range(20))", "scale = float(len(self.s))\nself.s.discard(int(scale) - 1)"),
    "set_pop": ("set(range(1, 20))", "scale = 1.0 / self.s.pop()"),
    "set_difference": ("set(range(1, 20))", "scale = 1.0 / min(self.s)\nself.s.difference_update({min(self.s)})"),
    "set_minus": ("set(range(1, 20))", "scale = 1.0 / min(self.s)\nself.s -= {min(self.s)}"),
    "deque_popleft": (f"deque({NUMBERS})", "scale = self.s.popleft()"),
    "deque_rotate": ("deque([1.0, 2.0, 3.0])", "scale = self.s[0]\nself.s.rotate(1)"),
    "deque_appendleft": ("deque([1.0], maxlen=3)", "scale = self.s[0]\nself.s.appendleft(scale + 1)"),
    "counter_subtract": ("Counter(n=20)", "scale = 1.0 / self.s['n']\nself.s.subtract(['n'])"),
    "counter_update": ("Counter(n=1)", "scale = 1.0 / self.s['n']\nself.s.update(['n'])"),
    "ordered_move": (
        "OrderedDict(a=1.0, b=2.0)",
        "first = next(iter(self.s))\nscale = self.s[first]\nself.s.move_to_end(first)",
    ),
    "defaultdict_read": ("defaultdict(float)", "scale = 1.0 / (1 + len(self.s))\nself.s[len(self.s)]"),
    "defaultdict_nested": ("defaultdict(list)", "self.s['n'].append(1)\nscale = 1.0 / len(self.s['n'])"),
    "array_append": ("array.array('d', [1.0])", "scale = self.s[-1]\nself.s.append(scale + 1)"),
    "array_item": ("array.array('d', [1.0])", "scale = self.s[0]\nself.s[0] += 1"),
    "bytearray_item": ("bytearray(b'\\x01')", "scale = 1.0 / self.s[0]\nself.s[0] += 1"),
    "queue_get": ("queue.Queue()", "self.s.put(self.s.qsize() + 1.0)\nscale = 1.0 / self.s.qsize()"),
    "simple_queue": ("queue.SimpleQueue()", "self.s.put(1.0)\nscale = 1.0 / self.s.qsize()"),
    "user_dict": ("collections.UserDict(n=1.0)", "scale = self.s['n']\nself.s['n'] = scale + 1"),
    "chain_map": ("collections.ChainMap({'n': 1.0})", "scale = self.s['n']\nself.s['n'] = scale + 1"),
    "heap_push": ("[1.0]", "heapq.heappush(self.s, -float(len(self.s)))\nscale = self.s[0]"),
    "heap_pop": (NUMBERS, "scale = heapq.heappop(self.s)"),
    "bisect": ("[1.0]", "bisect.insort(self.s, -float(len(self.s)))\nscale = self.s[0]"),
    "operator_setitem": ("{'n': 1.0}", "scale = self.s['n']\noperator.setitem(self.s, 'n', scale + 1)"),
    "operator_iadd": ("[1.0]", "scale = 1.0 / len(self.s)\noperator.iadd(self.s, [1.0])"),
    "shuffle": (NUMBERS, "random.shuffle(self.s)\nscale = self.s[0]"),
    "shuffle_own": (NUMBERS, "random.Random(3).shuffle(self.s)\nscale = self.s[0]"),
    "iterator": (f"iter({NUMBERS})", "scale = next(self.s)"),
    "cycle": ("itertools.cycle([1.0, 2.0, 3.0])", "scale = next(self.s)"),
    "count": ("itertools.count(1)", "scale = 1.0 / next(self.s)"),
    "generator": (f"(i for i in {NUMBERS})", "for scale in self.s:\n    break"),
    "numpy_item": ("np.ones(2)", "self.s[0] += 1\nscale = float(self.s[0])"),
    "numpy_operator": ("np.ones(2)", "self.s *= 1.5\nscale = float(self.s.sum())"),
    "numpy_scalar": ("np.array(1.0)", "self.s += 1\nscale = float(self.s)"),
    "numpy_fill": ("np.ones(2)", "scale = float(self.s[0])\nself.s.fill(scale + 1)"),
    "numpy_sort": ("np.array([3.0, 1.0])", "scale = float(self.s[0])\nself.s.sort()"),
    "numpy_at": ("np.ones(2)", "np.add.at(self.s, [0], 1)\nscale = float(self.s[0])"),
    "numpy_out": ("np.ones(2)", "np.add(self.s, 1, out=self.s)\nscale = float(self.s[0])"),
    "numpy_copyto": ("np.ones(2)", "scale = float(self.s[0])\nnp.copyto(self.s, scale + 1)"),
    "numpy_view": ("np.ones((2, 2))", "row = self.s[0]\nrow += 1\nscale = float(self.s[0, 0])"),
    "tensor_add": ("torch.ones(1)", "self.s.add_(1)\nscale = float(self.s)"),
    "tensor_result": ("torch.ones(1)", "scale = float(self.s.mul_(1.5))"),
    "tensor_operator": ("torch.ones(1)", "self.s += 1\nscale = float(self.s)"),
    "tensor_item": ("torch.ones(2)", "self.s[0] = self.s[0] + 1\nscale = float(self.s[0])"),
    "tensor_copy": ("torch.ones(1)", "scale = float(self.s)\nself.s.copy_(self.s + 1)"),
    "tensor_out": ("torch.ones(1)", "torch.add(self.s, 1, out=self.s)\nscale = float(self.s)"),
    "tensor_data": ("torch.ones(1)", "self.s.data.add_(1)\nscale = float(self.s)"),
    "tensor_numpy": ("torch.ones(1)", "self.s.numpy()[0] += 1\nscale = float(self.s)"),
    "tensor_init": ("torch.ones(1)", "scale = float(self.s)\nnn.init.constant_(self.s, scale + 1)"),
    "tensor_function": ("-torch.ones(1)", "scale = float(self.s)\ntorch.relu_(self.s)"),
    "tensor_list": ("torch.ones(1)", "scale = float(self.s)\ntorch._foreach_add_([self.s], 1.0)"),
    "tensor_view": ("torch.ones(2, 2)", "self.s.view(-1)[0] += 1\nscale = float(self.s[0, 0])"),
    "tensor_resize": ("torch.ones(1)", "scale = 1.0 / self.s.numel()\nself.s.resize_(self.s.numel() + 1)"),
    "nested_list": ("{'a': [1.0]}", "self.s['a'].append(1.0)\nscale = 1.0 / len(self.s['a'])"),
    "nested_loop": ("[[1.0], [2.0]]", "for one in self.s:\n    one.append(1.0)\nscale = 1.0 / len(self.s[0])"),
    "nested_values": ("{'a': [1.0]}", (
        "for one in self.s.values():\n"
        "    one.append(1.0)\n"
        "scale = 1.0 / len(self.s['a'])"
    )),
    "tuple_of_lists": ("([1.0], [2.0])", "self.s[0].append(1.0)\nscale = 1.0 / len(self.s[0])"),
    "alias": (NUMBERS, "d = self.s\nscale = d.pop()"),
    "alias_of_two": (NUMBERS, "a, b = self.s, self.fc\nscale = a.pop()"),
    "alias_or": (NUMBERS, "d = self.s or [1.0]\nscale = d.pop()"),
    "alias_getattr": (NUMBERS, "scale = getattr(self, 's').pop()"),
    "alias_getattr_unknown": (NUMBERS, "name = 'xs'[1:]\nscale = getattr(self, name).pop()"),
    "alias_vars": (NUMBERS, "scale = vars(self)['s'].pop()"),
    "alias_dict": (NUMBERS, "scale = self.__dict__['s'].pop()"),
    "number": ("1.0", "self.s += 1\nscale = self.s"),
    "number_set": ("1.0", "scale = self.s\nself.s = scale + 1"),
    "number_unpacked": ("1.0", "scale, self.s = self.s, self.s + 1"),
    "number_setattr": ("1.0", "scale = self.s\nsetattr(self, 's', scale + 1)"),
    "number_object_setattr": ("1.0", "scale = self.s\nobject.__setattr__(self, 's', scale + 1)"),
    "number_in_dict": ("1.0", "scale = self.s\nself.__dict__['s'] = scale + 1"),
    "anew": ("[]", "self.s = []\nself.s.append(1.0)\nscale = 1.0 / len(self.s)"),
    "anew_too_late": ("[1.0]", "self.s.append(1.0)\nscale = 1.0 / len(self.s)\nself.s = [1.0]"),
    "anew_from_old": ("[1.0]", "self.s = self.s\nself.s.append(1.0)\nscale = 1.0 / len(self.s)"),
    "parameter_data": ("nn.Parameter(torch.ones(1))", "self.s.data.add_(0.5)\nscale = self.s"),
}  # fmt: skip
TICKING = """\
class Ticking:
    def __init__(self):
        self.n = 0
    def tick(self):
        self.n += 1
        return self.n
    def __exit__(self, *raised):
        pass
    def {method}(self, *rest):
        return {result}
"""
IMPLICIT = {  # what Python calls of an object that is mentioned: method, what it gives, the forward
    "__enter__": ("self.tick()", "with self.s as n:\n    scale = 1.0 / n"),
    "__float__": ("float(self.tick())", "scale = 1.0 / float(self.s)"),
    "__truediv__": ("rest[0] / self.tick()", "scale = self.s / 1.0"),
    "__bool__": ("self.tick() % 2 == 0", "scale = 1.0 if self.s else 0.5"),
    "__len__": ("self.tick()", "scale = 1.0 / len(self.s)"),
    "__contains__": ("self.tick() % 2 == 0", "scale = 1.0 if 1 in self.s else 0.5"),
    "__iter__": ("iter([self.tick()])", "scale = 1.0 / sum(self.s)"),
    "__index__": ("self.tick() % 2", "scale = (1.0, 0.5)[self.s]"),
}
LOST = {  # set on a replica itself, made anew in each forward, or a buffer: DataParallel loses it, or copies it
    *("number", "number_set", "number_unpacked", "number_setattr", "number_object_setattr", "number_in_dict"),
    *("anew", "buffer", "buffer_set", "local_only", "local_copy"),
}
ALL = [
    *(net_with(name, forward, made) for name, (made, forward) in TAKEN.items()),
    *cases(FOLDER / "cases.diff"),
    *(
        net_with(f"implicit{name}", forward, "Ticking()", TICKING.format(method=name, result=result))
        for name, (result, forward) in IMPLICIT.items()
    ),
]
MORE = cases(FOLDER / "later.diff")  # found when the codemod was written anew; its tests alone have them
