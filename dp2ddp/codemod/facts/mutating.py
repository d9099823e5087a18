"""What changes a thing in place: methods of its own, by kind, and functions that are given it.

One table for all facts. tests/codemod/facts/test_mutating.py holds it against Python, numpy and torch: each public
method of each kind is called, and is here if and only if its object is another one afterwards.
"""

from __future__ import annotations

from dp2ddp.codemod.facts.tables import of

_SEQUENCE = {"append", "clear", "extend", "insert", "pop", "remove", "reverse"}
_MAPPING = {"clear", "pop", "popitem", "setdefault", "update"}
QUEUE_METHODS = {"get", "get_nowait", "put", "put_nowait", "shutdown", "task_done"}
MUTATING_METHODS = {
    "builtins.list": {*_SEQUENCE, "sort"},
    "builtins.dict": _MAPPING,
    "builtins.set": {
        *("add", "clear", "discard", "pop", "remove", "update"),
        *("difference_update", "intersection_update", "symmetric_difference_update"),
    },
    "builtins.bytearray": {*_SEQUENCE, "resize"},
    "collections.deque": {*_SEQUENCE, "appendleft", "extendleft", "popleft", "rotate"},
    "collections.Counter": {*_MAPPING, "subtract"},
    "collections.OrderedDict": {*_MAPPING, "move_to_end"},
    "collections.defaultdict": {*_MAPPING, "__getitem__", "__missing__"},
    "collections.UserDict": _MAPPING,
    "collections.UserList": {*_SEQUENCE, "sort"},
    "collections.ChainMap": _MAPPING,
    "array.array": {*_SEQUENCE, "byteswap", "frombytes", "fromfile", "fromlist", "fromunicode"},
    **dict.fromkeys(of("queue", "Queue LifoQueue PriorityQueue SimpleQueue"), QUEUE_METHODS),
    "numpy.ndarray": {"fill", "itemset", "partition", "put", "resize", "setfield", "setflags", "sort"},
    "torch.Tensor": {"retain_grad", "backward"},  # and whatever ends with one underscore
}
IN_PLACE_OPERATORS = {
    f"__i{name}__"
    for name in (
        *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"),
        *("and", "or", "xor", "lshift", "rshift", "concat"),
    )
} | {"__setitem__", "__delitem__", "__setattr__", "__delattr__"}
# Of something whose kind is not known: `get` looks into a dict far more often than it takes from a queue.
_AMBIGUOUS = {
    "get",
    "get_nowait",
    "backward",
    "retain_grad",
    "resize",
    "partition",
    "shutdown",
    "__getitem__",
}
_ANY = set.union(*MUTATING_METHODS.values()) - _AMBIGUOUS
# These return nothing, and never fail whatever the thing holds: who calls them learns nothing of it.
SILENT_METHODS = {
    *("append", "appendleft", "extend", "extendleft", "insert", "clear", "sort", "reverse", "rotate"),
    *("add", "discard", "update", "subtract", "difference_update", "intersection_update"),
    *("symmetric_difference_update", "fill", "put", "put_nowait", "itemset", "setfield", "setflags"),
    *(
        "frombytes",
        "fromfile",
        "fromlist",
        "fromunicode",
        "byteswap",
        "retain_grad",
        "backward",
        "__setitem__",
    ),
}
FILLING_METHODS = {
    "append",
    "appendleft",
    "extend",
    "extendleft",
    "insert",
    "add",
    "update",
    "setdefault",
    "put",
}
# Functions that change one of their arguments: which.
_HEAP = of("heapq", "heappush heappop heapify heapreplace heappushpop heappush_max heappop_max heapify_max")
_NUMPY = of("numpy", "copyto put place putmask fill_diagonal put_along_axis")
_OPERATORS = of("operator", " ".join((*(name.strip("_") for name in IN_PLACE_OPERATORS), "setitem delitem")))
MUTATING_FUNCTIONS = {
    **dict.fromkeys(("builtins.next", "builtins.anext", "builtins.setattr", "builtins.delattr"), 0),
    **dict.fromkeys((*_HEAP, *_NUMPY, *_OPERATORS), 0),
    **dict.fromkeys(of("bisect", "insort insort_left insort_right"), 0),
    **dict.fromkeys(("random.shuffle", "numpy.random.shuffle", "collections._count_elements"), 0),
    "struct.pack_into": 1,
    "itertools.islice": 0,  # of an iterator
}
SHUFFLES = {"shuffle"}  # methods of generators, which change what they are given


def is_in_place(method: str) -> bool:
    """torch's own rule of names: `add_`, `zero_`, `copy_`."""
    return method.endswith("_") and not method.startswith("_")


def mutates(method: str, kind: str | None = None) -> bool:
    """Whether a method changes its object: of a kind that is known ("builtins.list"), or of any."""
    if method in IN_PLACE_OPERATORS:
        return True
    if kind is None:
        return method in _ANY or is_in_place(method)
    return method in MUTATING_METHODS.get(kind, _ANY) or is_in_place(method) and kind == "torch.Tensor"


def mutated_argument(name: str) -> int | None:
    """Which argument a function changes: of `heapq.heappush`, `list.append`, `numpy.add.at`, `torch.nn.init.zeros_`."""
    if name in MUTATING_FUNCTIONS:
        return MUTATING_FUNCTIONS[name]
    owner, _, last = name.rpartition(".")
    is_method = owner in MUTATING_METHODS and mutates(last, owner)
    is_operator = last in IN_PLACE_OPERATORS
    of_torch = name.startswith("torch.") and is_in_place(last)
    return 0 if is_method or is_operator or of_torch or name.startswith("numpy.") and last == "at" else None
