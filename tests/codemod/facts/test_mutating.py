"""The table of what changes a thing in place, against Python, numpy and torch themselves: each method is called."""

from __future__ import annotations

import array
import ast
import bisect
import copy
import heapq
import operator
import queue
import random
import struct
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dp2ddp.codemod.facts.draws import HOST_STREAMS
from dp2ddp.codemod.facts.mutating import (
    FILLING_METHODS,
    IN_PLACE_OPERATORS,
    MUTATING_FUNCTIONS,
    MUTATING_METHODS,
    SILENT_METHODS,
    mutated_argument,
    mutates,
)


def _queue(kind: type) -> Any:
    made = kind()
    for item in (3, 1):
        made.put(item)
    return made


MAKERS: dict[str, Callable[[], Any]] = {
    "builtins.list": lambda: [3, 1, 2],
    "builtins.dict": lambda: {3: 0, 1: 5},
    "builtins.set": lambda: {3, 1, 2},
    "builtins.bytearray": lambda: bytearray(b"\x03\x01\x02"),
    "collections.deque": lambda: deque([3, 1, 2]),
    "collections.Counter": lambda: Counter({3: 2, 1: 5}),
    "collections.OrderedDict": lambda: OrderedDict({3: 0, 1: 5}),
    "collections.defaultdict": lambda: defaultdict(int, {3: 0, 1: 5}),
    "collections.UserDict": lambda: UserDict({3: 0, 1: 5}),
    "collections.UserList": lambda: UserList([3, 1, 2]),
    "collections.ChainMap": lambda: ChainMap({3: 0, 1: 5}),
    "array.array": lambda: array.array("i", [3, 1, 2]),
    "queue.Queue": lambda: _queue(queue.Queue),
    "queue.LifoQueue": lambda: _queue(queue.LifoQueue),
    "queue.PriorityQueue": lambda: _queue(queue.PriorityQueue),
    "queue.SimpleQueue": lambda: _queue(queue.SimpleQueue),
    "numpy.ndarray": lambda: np.array([3, 1, 2]),
}
# What each method is tried with; without an entry: with nothing. Every try that runs counts.
TRIES: dict[str, list[tuple[Any, ...]]] = {
    **dict.fromkeys(("append", "add"), [(7,)]),
    **dict.fromkeys(("appendleft", "put_nowait"), [(7,)]),
    "put": [(7,), ([0], [7])],
    "extend": [([7, 8],)],
    "extendleft": [([7, 8],)],
    "insert": [(0, 7)],
    "pop": [(), (1,)],
    **dict.fromkeys(("remove", "discard", "index", "count"), [(1,)]),
    "rotate": [(1,)],
    "setdefault": [(9, 7)],
    "update": [({9: 7},)],
    "subtract": [({1: 7},)],
    "move_to_end": [(3,)],
    "get": [(9,), ()],
    "fromkeys": [([1],)],
    **dict.fromkeys(("difference", "intersection", "union", "symmetric_difference"), [({1, 9},)]),
    **dict.fromkeys(("isdisjoint", "issubset", "issuperset"), [({1, 9},)]),
    **dict.fromkeys(("difference_update", "intersection_update", "symmetric_difference_update"), [({1, 9},)]),
    "task_done": [()],
    "frombytes": [(b"\0\0\0\0",)],
    "fromlist": [([7],)],
    "fill": [(7,)],
    "partition": [(1,), (b"\x01",)],
    "resize": [((2,),), (2,)],
    "itemset": [(0, 7)],  # of numpy 1
    "setfield": [(7, np.int8)],
    "setflags": [(False,)],
    "__getitem__": [(9,)],
    "__missing__": [(9,)],
}
# Not tried: they wait for ever, write files, or need text; none of them changes its object.
UNTRIED = {
    "join",
    "fromfile",
    "tofile",
    "dump",
    "ctypes",
    "buffer_info",
    "tounicode",
    "fromunicode",
    "tostring",
}


def state_of(value: Any) -> Any:
    """All that two equal things have alike."""
    if isinstance(value, (queue.Queue,)):
        return list(value.queue), value.unfinished_tasks, getattr(value, "is_shutdown", False)
    if isinstance(value, queue.SimpleQueue):
        return value.qsize()
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype, value.tobytes(), value.flags.writeable
    return list(value.items()) if hasattr(value, "items") else list(value)


def changes(kind: str, method: str) -> bool:
    """Whether a call of a method, as one of its tries, leaves its object another one."""
    for given in TRIES.get(method, [()]):
        thing = MAKERS[kind]()
        before = state_of(thing)
        try:
            getattr(thing, method)(*copy.copy(given))
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, NotImplementedError):
            continue
        if state_of(thing) != before:
            return True
    return False


def methods(kind: str) -> list[str]:
    thing = MAKERS[kind]()
    found = [
        name for name in dir(thing) if not name.startswith("_") and callable(getattr(type(thing), name, None))
    ]
    return [name for name in found if name not in UNTRIED]


@pytest.mark.parametrize(
    ("kind", "method"),
    [pytest.param(kind, one, id=f"{kind}.{one}") for kind in MAKERS for one in methods(kind)],
)
def test_a_method_is_in_the_table_if_it_changes_its_object(kind: str, method: str) -> None:
    assert changes(kind, method) == (method in MUTATING_METHODS[kind])


def test_every_kind_of_the_table_is_tried() -> None:
    assert MUTATING_METHODS.keys() - {"torch.Tensor"} == MAKERS.keys()
    later = {
        "shutdown",
        "task_done",
        "resize",
        "itemset",
        "clear",
    }  # other queues, or other versions, have them
    for kind in MAKERS:
        listed = {one for one in MUTATING_METHODS[kind] if not one.startswith("__")}
        assert listed - {*methods(kind), *UNTRIED} <= later


def test_reading_a_defaultdict_fills_it() -> None:
    assert changes("collections.defaultdict", "__getitem__")
    assert mutates("__getitem__", "collections.defaultdict")
    assert not mutates("__getitem__", "builtins.dict")


def test_torch_names_what_works_in_place() -> None:
    """Every operator of torch whose schema writes to its first argument, as a method, is in the table; no other is."""
    for name in torch._C._dispatch_get_all_op_names():
        base, _, overload = name.removeprefix("aten::").partition(".")
        if not name.startswith("aten::") or base.startswith("_") or not hasattr(torch.Tensor, base):
            continue
        schema = getattr(getattr(torch.ops.aten, base), overload or "default")._schema
        written = [one.alias_info is not None and one.alias_info.is_write for one in schema.arguments[:1]]
        if any(written) and base != "record_stream":  # a note for the allocator
            assert mutates(base, "torch.Tensor"), base
        elif written and base != "resize":  # a name of old
            assert not mutates(base, "torch.Tensor"), base


@pytest.mark.parametrize("name", sorted(one for one in IN_PLACE_OPERATORS if hasattr(operator, one)))
def test_operators_that_change_what_they_are_given(name: str) -> None:
    assert mutates(name)
    assert mutated_argument(f"operator.{name.strip('_')}") == 0


def test_python_has_no_other_operators_in_place() -> None:
    kept = {"setitem", "delitem"}
    in_place = {one for one in operator.__all__ if one.startswith("i") and one[1:] in operator.__all__} | kept
    not_in_place = {"index", "itemgetter"}
    assert {
        one for one in operator.__all__ if mutated_argument(f"operator.{one}") == 0
    } >= in_place - not_in_place


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "heapq.heappush": lambda it: heapq.heappush(it, 0),
    "heapq.heappop": heapq.heappop,
    "heapq.heapify": heapq.heapify,
    "heapq.heapreplace": lambda it: heapq.heapreplace(it, 9),
    "heapq.heappushpop": lambda it: heapq.heappushpop(it, 9),
    "bisect.insort": lambda it: bisect.insort(it, 2),
    "bisect.insort_left": lambda it: bisect.insort_left(it, 2),
    "bisect.insort_right": lambda it: bisect.insort_right(it, 2),
    "random.shuffle": lambda it: random.Random(1).shuffle(it),
    "operator.setitem": lambda it: operator.setitem(it, 0, 9),
    "operator.delitem": lambda it: operator.delitem(it, 0),
    "operator.iadd": lambda it: operator.iadd(it, [9]),
    "operator.iconcat": lambda it: operator.iconcat(it, [9]),
    "operator.imul": lambda it: operator.imul(it, 2),
    "builtins.list.append": lambda it: list.append(it, 9),
}
PURE_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "heapq.nlargest": lambda it: heapq.nlargest(1, it),
    "heapq.merge": lambda it: list(heapq.merge(it, [1])),
    "bisect.bisect": lambda it: bisect.bisect(it, 2),
    "builtins.sorted": sorted,
    "builtins.list.index": lambda it: list.index(it, 2),
    "operator.add": lambda it: operator.add(it, [1]),
    "copy.copy": copy.copy,
}


@pytest.mark.parametrize("name", [*FUNCTIONS, *PURE_FUNCTIONS])
def test_functions_that_change_their_argument(name: str) -> None:
    thing = [5, 2, 4, 3]
    {**FUNCTIONS, **PURE_FUNCTIONS}[name](thing)
    assert (thing != [5, 2, 4, 3]) == (mutated_argument(name) == 0) == (name in FUNCTIONS)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("numpy.copyto", (np.ones(3),)),
        ("numpy.put", ([0], [7.0])),
        ("numpy.place", (np.array([True, False, True]), [7.0])),
        ("numpy.putmask", (np.array([True, False, True]), 7.0)),
        ("numpy.put_along_axis", (np.array([0]), 7.0, 0)),
        ("numpy.add.at", ([0], 7.0)),
        ("numpy.ndarray.sort", ()),
        ("numpy.ndarray.fill", (7.0,)),
        ("numpy.sort", ()),
        ("numpy.roll", (1,)),
    ],
)
def test_functions_of_numpy_that_change_their_argument(name: str, given: tuple[Any, ...]) -> None:
    thing = np.array([3.0, 2.0, 1.0])
    operator.attrgetter(name.removeprefix("numpy."))(np)(thing, *given)
    assert (thing.tolist() != [3.0, 2.0, 1.0]) == (mutated_argument(name) == 0)


def test_an_argument_behind_the_first() -> None:
    buffer = bytearray(4)
    struct.pack_into("i", buffer, 0, 7)
    assert buffer[0] == 7
    assert MUTATING_FUNCTIONS["struct.pack_into"] == 1


@pytest.mark.parametrize(
    "name", ["torch.relu_", "torch.nn.functional.elu_", "torch.nn.init.zeros_", "torch.Tensor.add_"]
)
def test_functions_of_torch_tell_it_by_their_names(name: str) -> None:
    tensor = torch.tensor([-1.0, 2.0])
    operator.attrgetter(name.removeprefix("torch."))(torch)(tensor, *([1.0] if name.endswith("add_") else []))
    assert tensor.tolist() != [-1.0, 2.0]
    assert mutated_argument(name) == 0


@pytest.mark.parametrize("method", sorted(SILENT_METHODS - {"retain_grad", "backward", "__setitem__"}))
def test_silent_methods_return_nothing(method: str) -> None:
    for kind in MAKERS:
        if method in MUTATING_METHODS[kind] and method not in UNTRIED and hasattr(MAKERS[kind](), method):
            returned = []
            for given in TRIES.get(method, [()]):
                try:
                    returned.append(getattr(MAKERS[kind](), method)(*copy.copy(given)))
                except (TypeError, ValueError):
                    continue
            assert set(map(type, returned)) <= {type(None)}, kind


def test_filling_methods_put_something_in() -> None:
    assert set().union(*MUTATING_METHODS.values()) >= FILLING_METHODS


def test_facts_have_no_table_of_their_own() -> None:
    """Names of mutating methods, or of streams, stand in one file."""
    import dp2ddp.codemod.facts as facts

    for path in sorted(__import__("pathlib").Path(facts.__file__).parent.glob("*.py")):
        if path.name in ("mutating.py", "draws.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Tuple, ast.Set, ast.List)):
                words = {one.value for one in node.elts if isinstance(one, ast.Constant)}
                assert len(words & {"append", "extend", "pop", "popitem", "update", "add"}) < 3, (
                    path.name,
                    node.lineno,
                )
                assert not words & {*HOST_STREAMS, "normal_", "uniform_"}, (path.name, node.lineno)
