"""Small training scripts, each with one thing that its forward changes: a list, a counter, a tensor, an object.

DataParallel's replicas share what attributes refer to, and lose what is set on themselves; ranks do neither. So each of
these is converted to something that trains the same, or it is a hazard: tests/codemod/test_forward_mutations.py.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

SCRIPT = """
import array, bisect, collections, contextlib, functools, heapq, itertools, operator, queue, random, threading
from collections import Counter, OrderedDict, defaultdict, deque
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
random.seed(0)
np.random.seed(0)
MODULE

class Net(BASE):
    ATTRIBUTES
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        INIT
    METHODS
    def forward(self, xPARAMETER):
        FORWARD
        return self.fc(x) * scale


net = nn.DataParallel(Net()).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = TensorDataset(torch.randn(22, 4), torch.randn(22, 3))
for x, y in DataLoader(data, batch_size=6):
    loss = ((net(x.cuda()) - y.cuda()) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.6f}")
AFTER
"""


@dataclass(frozen=True)
class Mutation:
    """The parts of one script that differ from the others'."""

    name: str
    init: str
    forward: str
    module: str = ""
    methods: str = ""
    attributes: str = ""
    base: str = "nn.Module"
    parameter: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        parts = vars(self)
        text = SCRIPT.replace("PARAMETER", self.parameter).replace("BASE", self.base)
        for line in SCRIPT.splitlines():
            if (part := parts.get(line.strip().lower())) is not None:
                indent = line[: len(line) - len(line.lstrip())]
                text = text.replace(f"{line}\n", textwrap.indent(f"{part.strip()}\n" if part else "", indent))
        return text


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
HOLDER = """
class Holder:
    def __init__(self):
        self.n = 0
        self.items = []
    def step(self):
        self.n += 1
        return self.n
    def keep(self, one):
        self.items.append(one)
    def __call__(self, x):
        self.n += 1
        return x / self.n
"""
OTHERS = [
    Mutation("global_list", "", "SEEN.append(1)\nscale = 1.0 / len(SEEN)", module="SEEN = []"),
    Mutation("global_number", "", "global CALLS\nCALLS += 1\nscale = 1.0 / CALLS", module="CALLS = 0"),
    Mutation("global_alias", "", "seen = SEEN\nseen.append(1)\nscale = 1.0 / len(SEEN)", module="SEEN = []"),
    Mutation(
        "global_read_outside", "", "SEEN.append(len(x))\nscale = 1.0", module="SEEN = []", after="print(SEEN)"
    ),
    Mutation(
        "list_read_outside", "self.s = []", "self.s.append(len(x))\nscale = 1.0", after="print(net.module.s)"
    ),
    Mutation(
        "function_attribute",
        "",
        "count.n += 1\nscale = 1.0 / count.n",
        module="def count(): pass\ncount.n = 0",
    ),
    Mutation(
        "helper",
        "self.s = []",
        "keep(self.s, 1)\nscale = 1.0 / len(self.s)",
        module="def keep(where, one):\n    where.append(one)",
    ),
    Mutation(
        "helper_global",
        "",
        "scale = tick()",
        module="N = [0]\ndef tick():\n    N[0] += 1\n    return 1.0 / N[0]",
    ),
    Mutation(
        "helper_default",
        "",
        "scale = tick()",
        module="def tick(n=[0]):\n    n[0] += 1\n    return 1.0 / n[0]",
    ),
    Mutation(
        "helper_closure",
        "self.tick = make()",
        "scale = self.tick()",
        module=(
            "def make():\n"
            "    n = 0\n"
            "    def tick():\n"
            "        nonlocal n\n"
            "        n += 1\n"
            "        return 1.0 / n\n"
            "    return tick"
        ),
    ),
    Mutation(
        "helper_closure_list",
        "self.tick = make()",
        "scale = self.tick()",
        module=(
            "def make():\n"
            "    n = [0]\n"
            "    def tick():\n"
            "        n[0] += 1\n"
            "        return 1.0 / n[0]\n"
            "    return tick"
        ),
    ),
    Mutation(
        "helper_partial",
        "self.s = [0]\nself.tick = functools.partial(tick, self.s)",
        "scale = self.tick()",
        module="def tick(n):\n    n[0] += 1\n    return 1.0 / n[0]",
    ),
    Mutation("default", "", "state.append(1)\nscale = 1.0 / len(state)", parameter=", state=[]"),
    Mutation(
        "default_keyword",
        "",
        "state['n'] = state.get('n', 0) + 1\nscale = 1.0 / state['n']",
        parameter=", *, state={}",
    ),
    Mutation("class_list", "", "self.s.append(1)\nscale = 1.0 / len(self.s)", attributes="s = []"),
    Mutation("class_list_by_name", "", "Net.s.append(1)\nscale = 1.0 / len(self.s)", attributes="s = []"),
    Mutation("class_number", "", "Net.n += 1\nscale = 1.0 / Net.n", attributes="n = 0"),
    Mutation("class_number_type", "", "type(self).n += 1\nscale = 1.0 / self.n", attributes="n = 0"),
    Mutation("class_setattr", "", "setattr(Net, 'n', Net.n + 1)\nscale = 1.0 / Net.n", attributes="n = 0"),
    Mutation(
        "method",
        "self.s = []",
        "scale = self.tick()",
        methods="def tick(self):\n    self.s.append(1)\n    return 1.0 / len(self.s)\n",
    ),
    Mutation(
        "method_handed_on",
        "self.s = []",
        "scale = run(self.tick)",
        module="def run(f):\n    return f()",
        methods="def tick(self):\n    self.s.append(1)\n    return 1.0 / len(self.s)\n",
    ),
    Mutation(
        "method_that_gives",
        "self.s = []",
        "self.store().append(1)\nscale = 1.0 / len(self.s)",
        methods="def store(self):\n    return self.s\n",
    ),
    Mutation(
        "property",
        "self.s = []",
        "scale = self.tick",
        methods="@property\ndef tick(self):\n    self.s.append(1)\n    return 1.0 / len(self.s)\n",
    ),
    Mutation(
        "static_method",
        "",
        "scale = self.tick()",
        module="SEEN = []",
        methods="@staticmethod\ndef tick():\n    SEEN.append(1)\n    return 1.0 / len(SEEN)\n",
    ),
    Mutation(
        "inherited",
        base="Base",
        init="self.s = []",
        forward="scale = self.tick()",
        module=(
            "class Base(nn.Module):\n"
            "    def tick(self):\n"
            "        self.s.append(1)\n"
            "        return 1.0 / len(self.s)\n"
        ),
    ),
    Mutation(
        "part",
        "self.part = Part()",
        "scale = self.part(x)",
        module=(
            "class Part(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.s = []\n"
            "    def forward(self, x):\n"
            "        self.s.append(1)\n"
            "        return 1.0 / len(self.s)\n"
        ),
    ),
    Mutation(
        "part_method",
        "self.part = Part()",
        "scale = self.part.tick()",
        module=(
            "class Part(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.s = []\n"
            "    def tick(self):\n"
            "        self.s.append(1)\n"
            "        return 1.0 / len(self.s)\n"
        ),
    ),
    Mutation(
        "part_list_from_outside",
        "self.part = nn.Identity()\nself.part.s = []",
        "self.part.s.append(1)\nscale = 1.0 / len(self.part.s)",
    ),
    Mutation("object_step", "self.s = Holder()", "scale = 1.0 / self.s.step()", module=HOLDER),
    Mutation(
        "object_keep", "self.s = Holder()", "self.s.keep(1)\nscale = 1.0 / len(self.s.items)", module=HOLDER
    ),
    Mutation("object_call", "self.s = Holder()", "x = self.s(x)\nscale = 1.0", module=HOLDER),
    Mutation("object_attribute", "self.s = Holder()", "self.s.n += 1\nscale = 1.0 / self.s.n", module=HOLDER),
    Mutation(
        "object_setattr",
        "self.s = Holder()",
        "setattr(self.s, 'n', self.s.n + 1)\nscale = 1.0 / self.s.n",
        module=HOLDER,
    ),
    Mutation(
        "object_list",
        "self.s = Holder()",
        "self.s.items.append(1)\nscale = 1.0 / len(self.s.items)",
        module=HOLDER,
    ),
    Mutation("object_alias", "self.s = Holder()", "h = self.s\nscale = 1.0 / h.step()", module=HOLDER),
    Mutation("object_global", "", "scale = 1.0 / HOLDER.step()", module=HOLDER + "HOLDER = Holder()"),
    Mutation("object_in_dict", "self.s = {'a': Holder()}", "scale = 1.0 / self.s['a'].step()", module=HOLDER),
    Mutation(
        "object_in_list",
        "self.s = [Holder()]",
        "for one in self.s:\n    scale = 1.0 / one.step()",
        module=HOLDER,
    ),
    Mutation(
        "handed_in",
        "self.s = STORE",
        "self.s.append(1)\nscale = 1.0",
        module="STORE = []",
        after="print(len(STORE))",
    ),
    Mutation(
        "handed_in_object",
        "self.s = STORE",
        "self.s.keep(1)\nscale = 1.0",
        module=HOLDER + "STORE = Holder()",
        after="print(len(STORE.items))",
    ),
    Mutation("two_names", "self.s = []\nself.t = self.s", "self.t.append(1)\nscale = 1.0 / len(self.s)"),
    Mutation("buffer", "self.register_buffer('s', torch.ones(1))", "self.s.add_(1)\nscale = self.s"),
    Mutation("buffer_set", "self.register_buffer('s', torch.ones(1))", "self.s = self.s + 1\nscale = self.s"),
    Mutation(
        "hook",
        "self.s = []\nself.fc.register_forward_hook(lambda m, i, o: self.s.append(1))",
        "scale = 1.0 / (1 + len(self.s))",
    ),
    Mutation(
        "hook_method",
        "self.s = []\nself.fc.register_forward_hook(self.keep)",
        "scale = 1.0 / (1 + len(self.s))",
        methods="def keep(self, m, i, o):\n    self.s.append(1)\n",
    ),
    Mutation(
        "hook_object",
        "self.fc.register_forward_hook(KEEPER)",
        "scale = 1.0 / (1 + len(KEEPER.s))",
        module=(
            "class Keeper:\n"
            "    def __init__(self):\n"
            "        self.s = []\n"
            "    def __call__(self, m, i, o):\n"
            "        self.s.append(1)\n"
            "KEEPER = Keeper()"
        ),
        after="",
    ),
    Mutation(
        "with_lock",
        "self.s = []",
        "with LOCK:\n    self.s.append(1)\nscale = 1.0 / len(self.s)",
        module="LOCK = threading.Lock()",
    ),
    Mutation(
        "comprehension", "self.s = []", "[self.s.append(i) for i in range(2)]\nscale = 1.0 / len(self.s)"
    ),
    Mutation(
        "lambda",
        "self.s = []\nself.tick = lambda: self.s.append(1)",
        "self.tick()\nscale = 1.0 / len(self.s)",
    ),
    Mutation(
        "cache_decorator",
        "",
        "scale = float(first(len(x)))",
        module="N = [0]\n@functools.lru_cache(maxsize=None)\ndef first(n):\n    N[0] += 1\n    return 1.0 / N[0]",
    ),
    Mutation("numpy_generator", "self.s = np.random.RandomState(3)", "scale = 1.0 + self.s.rand()"),
    Mutation(
        "torch_generator",
        "self.s = torch.Generator().manual_seed(3)",
        "scale = 1.0 + float(torch.rand(1, generator=self.s))",
    ),
    Mutation(
        "distribution",
        "self.s = torch.distributions.Normal(0.0, 1.0)",
        "scale = 1.0 + float(self.s.sample())",
    ),
]
MORE = [
    Mutation(
        "hook_on_module",
        "self.fc.seen = []\nself.fc.register_forward_hook(keep)",
        "scale = 1.0 / (1 + len(self.fc.seen))",
        module="def keep(m, i, o):\n    m.seen.append(1)\n",
    ),
    Mutation(
        "layers",
        "self.layers = nn.ModuleList([nn.Identity()])\nself.layers[0].seen = []",
        "for one in self.layers:\n    one.seen.append(1)\nscale = 1.0 / len(self.layers[0].seen)",
    ),
    Mutation(
        "table_of_functions",
        "",
        "scale = STEPS['a']()",
        module="N = [0]\ndef tick():\n    N[0] += 1\n    return 1.0 / N[0]\nSTEPS = {'a': tick}",
    ),
    Mutation(
        "chosen_function",
        "self.act = tick",
        "scale = self.act()",
        module="N = [0]\ndef tick():\n    N[0] += 1\n    return 1.0 / N[0]",
    ),
    Mutation(
        "super_method",
        "self.s = []",
        "scale = super().tick()",
        module=(
            "class Base(nn.Module):\n"
            "    def tick(self):\n"
            "        self.s.append(1)\n"
            "        return 1.0 / len(self.s)\n"
        ),
        base="Base",
    ),
    Mutation("two_assigned", "self.s = self.t = []", "self.s.append(1)\nscale = 1.0 / len(self.t)"),
    Mutation("unpacked_init", "self.s, self.t = [], {}", "self.s.append(1)\nscale = 1.0 / len(self.s)"),
    Mutation("annotated_init", "self.s: list = []", "self.s.append(1)\nscale = 1.0 / len(self.s)"),
    Mutation(
        "conditional_init",
        "self.s = [] if self.training else None",
        "self.s.append(1)\nscale = 1.0 / len(self.s)",
    ),
    Mutation(
        "empty_at_first",
        "self.s = None",
        "if self.s is None:\n    self.s = []\nself.s.append(1)\nscale = 1.0 / len(self.s)",
    ),
    Mutation(
        "nested_function",
        "self.s = []",
        "def keep(one):\n    self.s.append(one)\nkeep(1)\nscale = 1.0 / len(self.s)",
    ),
    Mutation(
        "try_pop", "self.s = [2.0]", "try:\n    scale = self.s.pop()\nexcept IndexError:\n    scale = 1.0"
    ),
    Mutation(
        "match_statement",
        "self.s = [2.0]",
        "match len(x):\n    case 3:\n        self.s.append(1)\nscale = 1.0 / len(self.s)",
    ),
    Mutation(
        "starred", "self.s = [1.0, 2.0]", "first, *self.s[1:] = [*self.s, 1.0]\nscale = 1.0 / len(self.s)"
    ),
    Mutation(
        "with_as",
        "self.s = {}",
        "with contextlib.nullcontext(1.0) as self.s[len(self.s)]:\n    pass\nscale = 1.0 / len(self.s)",
    ),
    Mutation("local_only", "self.s = 2.0", "parts = []\nparts.append(x)\nscale = self.s / len(parts)"),
    Mutation(
        "local_copy", "self.s = [1.0]", "mine = list(self.s)\nmine.append(1.0)\nscale = 1.0 / len(mine)"
    ),
]
TICKING = """
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
MORE += [
    Mutation(
        f"implicit{name}",
        "self.s = Ticking()",
        forward,
        module=TICKING.format(method=name, result=result),
    )
    for name, (result, forward) in IMPLICIT.items()
]
LOST = {  # set on a replica itself, made anew in each forward, or a buffer: DataParallel loses it, or copies it
    *("number", "number_set", "number_unpacked", "number_setattr", "number_object_setattr", "number_in_dict"),
    *("anew", "buffer", "buffer_set", "local_only", "local_copy"),
}
ALL = [
    *(Mutation(name, f"self.s = {made}", forward) for name, (made, forward) in TAKEN.items()),
    *OTHERS,
    *MORE,
]

LAST = "scale = 1.0"
PRINTED = "print(CALLS)"
LOG = """
import logging, sys
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s", force=True)
LOG = logging.getLogger("net")
"""
# Found when the codemod was written anew; its tests alone have them.
MORE = [
    Mutation("written", "self.s = open('log.txt', 'w')", f"self.s.write(f'{{x.sum().item():.6f}} ')\n{LAST}",
             after="net.module.s.close()\nprint(open('log.txt').read())"),
    Mutation("written_as_csv", "", f"ROWS.writerow([len(x), f'{{x.sum().item():.6f}}'])\n{LAST}",
             module="import csv\nFILE = open('log.csv', 'w')\nROWS = csv.writer(FILE)",
             after="FILE.close()\nprint(open('log.csv').read())"),
    Mutation("written_as_bytes", "self.s = open('log.bin', 'wb')", f"self.s.write(b'%d' % len(x))\n{LAST}",
             after="net.module.s.close()\nprint(open('log.bin', 'rb').read())"),
    *(Mutation(f"written_by_{library}", f"self.s = {library}.open('log.{end}', 'w{text}')",
               f"self.s.write({line})\nself.s.writelines([{line}, {line}])\n{LAST}",
               module=f"import {library}",
               after=f"net.module.s.close()\nprint({library}.open('log.{end}', 'r{text}').read())")
      for library, end, text, line in (("gzip", "gz", "t", "f'{len(x)} '"), ("bz2", "bz2", "b", "b'%d' % len(x)"),
                                       ("lzma", "xz", "t", "f'{len(x)} '"), ("codecs", "txt", "", "f'{len(x)} '"))),
    Mutation("logged", "", f"print(len(x))\nLOG.info('%.6f', x.sum().item())\nLOG.debug('no')\n{LAST}", module=LOG),
    Mutation("own_layers", "self.s = [self.fc]", f"self.s[0].weight.data.mul_(1 + 0.1 * float(x.mean()))\n{LAST}"),
    Mutation("own_parameters", "self.s = [*self.parameters()]",
             f"for p in self.s:\n    p.data.mul_(1 + 0.1 * float(x.mean()))\n{LAST}"),
    Mutation("layers_of_all", "", f"net.module.fc.weight.data.mul_(1 + 0.1 * float(x.mean()))\n{LAST}"),
    Mutation("parameter_beside", "", "W.data.mul_(1 + 0.1 * float(x.mean()))\nscale = W.detach().mean()",
             module="W = nn.Parameter(torch.ones(2))"),
    Mutation("event", "self.s = threading.Event()", "scale = 0.5 if self.s.is_set() else 1.0\nself.s.set()"),
    Mutation("semaphore", "self.s = threading.Semaphore(90)", "self.s.acquire()\nscale = 1.0 / self.s._value"),
    Mutation("property_set", "", f"self.calls = len(x)\n{LAST}", module="CALLS = []", after=PRINTED,
             methods="@property\ndef calls(self):\n    return 0\n@calls.setter\n"
                     "def calls(self, one):\n    CALLS.append(one)\n"),
    Mutation("hook_of_all", "", LAST, after=f"HANDLE.remove()\n{PRINTED}",
             module="CALLS = []\nHANDLE = nn.modules.module.register_module_forward_hook("
                    "lambda m, i, o: CALLS.append(len(o)))"),
    Mutation("of_thread", "", "T.n = getattr(T, 'n', 0) + 1\nscale = 1.0 / T.n", module="T = threading.local()"),
]  # fmt: skip
