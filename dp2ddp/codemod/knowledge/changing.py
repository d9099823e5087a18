"""What changes a thing in place: functions that are given it, by name, and methods of its own."""

from dp2ddp.codemod.knowledge.reading_methods import FILLING, of

# A function, and the place of the argument that it changes.
CHANGES: dict[str, int] = {
    **dict.fromkeys([
        *of("builtins", "next setattr delattr"), *of("heapq", "heappush heappop heapify heapreplace heappushpop"),
        *of("operator", "iadd isub imul imatmul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift iconcat setitem delitem"),
        *of("bisect", "insort insort_left insort_right"), "random.shuffle", "itertools.islice",  # of an iterator
        *of("numpy", "copyto put place putmask fill_diagonal put_along_axis random.shuffle"),
    ], 0),
    "struct.pack_into": 1, "torch.nn.utils.vector_to_parameters": 1,
}  # fmt: skip
_OF_ARRAYS = {"byteswap", "fromfile", "fromunicode", "setflags"}
_BY_SYNTAX = {"__setitem__", "__delitem__", "__setattr__", "__delattr__"}
# a file stands elsewhere, and is the same
_CHANGING = (FILLING - {"write", "writelines"}) | _OF_ARRAYS | _BY_SYNTAX
_CONTAINERS = ("builtins.list.", "builtins.dict.", "builtins.set.", "collections.deque.")


def is_in_place(method: str) -> bool:
    """torch's own rule of names: `add_`, `zero_`, `copy_`."""
    return method.endswith("_") and not method.startswith("_")


def changes_its_object(method: str) -> bool:
    """Whether a method, of an object of any kind, changes it."""
    return method in _CHANGING or is_in_place(method)


def changed_argument(name: str) -> int | None:
    """The place of the argument that a function changes: of `heapq.heappush`, `list.append`, `numpy.add.at`."""
    if name in CHANGES:
        return CHANGES[name]
    last = name.rpartition(".")[2]
    is_method = name.startswith(_CONTAINERS) and last in _CHANGING
    of_torch = name.startswith("torch.") and is_in_place(last)
    of_numpy = name.startswith("numpy.") and last == "at"
    return 0 if is_method or of_torch or of_numpy else None
