"""What changes a thing in place, against Python, numpy and torch themselves: each row is called."""

from __future__ import annotations

import array
import collections
import copy
import importlib
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dp2ddp.codemod.knowledge.changing import CHANGES, changed_argument, changes_its_object


class Thing:
    def __init__(self) -> None:
        self.a = 1


class Counted:
    """A thing that all operators change in place."""

    def __init__(self) -> None:
        self.calls = 0


def _count(self: Counted, other: object) -> Counted:
    self.calls += 1
    return self


for name in CHANGES:
    if name.startswith("operator.i"):
        setattr(Counted, f"__{name.rpartition('.')[2]}__", _count)

ARRAY = np.arange(4.0)
ARGUMENTS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "builtins.next": lambda: (iter([1, 2]),),
    "itertools.islice": lambda: (iter([1, 2]), 2),
    "builtins.setattr": lambda: (Thing(), "a", 2),
    "builtins.delattr": lambda: (Thing(), "a"),
    "operator.iconcat": lambda: ([1], [2]),
    "operator.setitem": lambda: ([1], 0, 2),
    "operator.delitem": lambda: ([1], 0),
    "heapq.heappop": lambda: ([1, 2],),
    "heapq.heapify": lambda: ([2, 1],),
    "heapq.heappushpop": lambda: ([1, 2], 3),
    "heapq.heapreplace": lambda: ([1, 2], 3),
    "heapq.heappush": lambda: ([1, 2], 3),
    "numpy.copyto": lambda: (ARRAY.copy(), 7.0),
    "numpy.place": lambda: (ARRAY.copy(), ARRAY > 1, [7.0]),
    "numpy.put": lambda: (ARRAY.copy(), [0], [7.0]),
    "numpy.putmask": lambda: (ARRAY.copy(), ARRAY > 1, [7.0]),
    "numpy.fill_diagonal": lambda: (np.zeros((2, 2)), 7.0),
    "numpy.put_along_axis": lambda: (ARRAY.copy(), np.array([0]), 7.0, 0),
    "random.shuffle": lambda: ([*range(99)],),
    "numpy.random.shuffle": lambda: ([*range(99)],),
    "struct.pack_into": lambda: ("i", bytearray(4), 0, 7),
    "torch.nn.utils.vector_to_parameters": lambda: (torch.ones(1), [torch.nn.Parameter(torch.zeros(1))]),
    **{f"bisect.{name}": lambda: ([1, 3], 2) for name in ("insort", "insort_left", "insort_right")},
}


def picture(thing: Any) -> bytes:
    return pickle.dumps(vars(thing) if isinstance(thing, Counted) else thing)


@pytest.mark.parametrize(("name", "place"), CHANGES.items())
def test_a_function_changes_the_argument_at_its_place_and_no_other(name: str, place: int) -> None:
    home, _, word = name.rpartition(".")
    given = ARGUMENTS.get(name, lambda: (Counted(), 2))()
    before = [picture(each) for each in given]
    result = getattr(importlib.import_module(home), word)(*given)
    if name == "itertools.islice":
        next(result)
    changed = [index for index, each in enumerate(given) if picture(each) != before[index]]
    assert changed == [place]
    assert changed_argument(name) == place


THINGS: dict[str, Callable[[], Any]] = {
    "builtins.list": lambda: [3, 1, 2],
    "builtins.dict": lambda: {1: 2},
    "builtins.set": lambda: {1, 2},
    "collections.deque": lambda: collections.deque([3, 1, 2]),
    "collections.OrderedDict": lambda: collections.OrderedDict({1: 2, 3: 4}),
    "collections.Counter": lambda: collections.Counter([1, 2]),
    "array.array": lambda: array.array("i", [1, 2]),
    "numpy.ndarray": lambda: np.array([[3.0, 1.0], [2.0, 5.0]]),
}
GIVEN: list[tuple[Any, ...]] = [
    *((), (1,), (3,), ([7],), ({7},), ({7: 8},), (0, 7), (7, 8), (0, 7.0), (1, 1), (b"abcd",), (7.0, "f8"), (-1,)),
    *(([1],), (False,), (0, 1), (operator.mul, 2)),
]  # fmt: skip
# `get` reads far more often than it takes; what is of numpy alone is a method of other things, too
AMBIGUOUS = {("numpy.ndarray", "partition"), ("numpy.ndarray", "resize"), ("array.array", "fromfile")}
INTO_FILES = {"tofile", "dump"}


@pytest.mark.parametrize("kind", THINGS)
@pytest.mark.filterwarnings("ignore")
def test_methods_are_told_by_whether_they_change_their_object(kind: str) -> None:
    for word in dir(THINGS[kind]()):
        if word.startswith("__") or word in INTO_FILES or (kind, word) in AMBIGUOUS:
            continue
        if any(_changes(THINGS[kind](), word, given) for given in GIVEN):
            assert changes_its_object(word), word


def _changes(thing: Any, word: str, given: tuple[Any, ...]) -> bool:
    method = getattr(thing, word)
    if not callable(method):
        return False
    before = pickle.dumps(thing), getattr(thing, "flags", None) and str(thing.flags)
    try:
        method(*copy.deepcopy(given))
    except (TypeError, ValueError, IndexError, KeyError, EOFError, RuntimeError, OverflowError):
        return False
    return before != (pickle.dumps(thing), getattr(thing, "flags", None) and str(thing.flags))


@pytest.mark.parametrize(
    ("name", "place"),
    {
        "builtins.list.append": 0,
        "builtins.list.index": None,
        "torch.nn.init.zeros_": 0,
        "torch.zeros": None,
        "numpy.add.at": 0,
        "numpy.add": None,
        "builtins.len": None,
    }.items(),
)
def test_functions_are_told_by_their_names(name: str, place: int | None) -> None:
    assert changed_argument(name) == place


def test_a_name_with_one_underscore_at_its_end_is_in_place() -> None:
    tensor = torch.zeros(2)
    tensor.add_(1)
    assert tensor.tolist() == [1, 1]
    assert changes_its_object("add_")
    assert not changes_its_object("__add__")
    assert not changes_its_object("add_one_to_a_copy")
