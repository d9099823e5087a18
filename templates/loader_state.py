"""What loading leaves behind in a loader, its samplers and its data set: the same on ranks that load nothing."""

import pickle
from collections import deque
from typing import Any

import torch
from torch.utils.data import Dataset, Sampler

from .process import own_rank
from .rank_zero_output import is_sendable
from .shared_state import generator_state, has_attributes, set_generator_state

# The way to a thing from a loader: names of attributes, and places in lists.
WayFromLoader = tuple[str | int, ...]

# How many steps a way has at most (a transform in a Compose in a data set in a Subset has seven), and how many things
# a list that is looked into.
DEPTH = 8
SHORT = 100

# Bytes up to which an array is looked at each time, and up to which a new one goes to the other ranks.
FEW_BYTES = 1 << 14
MANY_BYTES = 1 << 24

# What a loader has for itself.
OF_ITS_OWN = {"_iterator", "plain_class"}

NUMBERS_AND_TEXTS = (int, float, str, bytes, bool, type(None))
COLLECTIONS = (list, dict, set, deque)


class LoaderState:
    """The attributes that iterating a loader may change in rank 0's process.

    Numbers and texts, small arrays and short lists of numbers are compared, generators by their states, longer lists,
    dicts, sets and arrays by who they are and how long. What no attribute leads to is not seen; other objects than
    these (open files, iterators) stay rank 0's own, and so does what is large.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.found = objects_of(loader) if own_rank() == 0 else []

    def marks(self) -> list[dict[str, Any]]:
        """How each attribute is now."""
        return [{name: mark(value) for name, value in vars(thing).items()} for _, thing in self.found]

    def changed_since(self, marks: list[dict[str, Any]]) -> list[tuple[WayFromLoader, str, Any]]:
        """The attributes that changed: the way to whose, the name, and what makes another rank's the same."""
        changes = []
        for (path, thing), before in zip(self.found, marks, strict=True):
            for name, value in vars(thing).items():
                if name not in before or not same_mark(before[name], mark(value)):
                    change = change_of(value)
                    if change is not None and name not in OF_ITS_OWN:
                        changes.append((path, name, change))
        return changes

    def set(self, changes: list[tuple[WayFromLoader, str, Any]]) -> None:
        """Take over what rank 0 has."""
        for path, name, (kind, content) in changes:
            space = getattr(
                follow(self.loader, path), "__dict__", {}
            )  # an iterator, say, that only rank 0 has
            if kind == "state" and name in space:
                set_generator_state(space[name], content)
            elif kind == "content" and type(space.get(name)) is type(
                content
            ):  # others may hold the same list
                space[name].clear()
                (space[name].extend if isinstance(content, (list, deque)) else space[name].update)(content)
            elif kind != "state":
                space[name] = content


def objects_of(loader: Any) -> list[tuple[WayFromLoader, Any]]:
    """The loader, and all with attributes that it leads to; its data set only where no worker has a copy of it."""
    objects: list[tuple[WayFromLoader, Any]] = [((), loader)]
    seen = {id(loader)}
    if loader.num_workers > 0:
        seen |= {id(loader.dataset), id(loader.collate_fn)}
    reached: list[tuple[WayFromLoader, Any]] = [
        ((name,), value) for name, value in vars(loader).items() if name not in OF_ITS_OWN
    ]
    for path, value in reached:
        if id(value) in seen or len(path) > DEPTH or isinstance(value, NUMBERS_AND_TEXTS):
            continue
        seen.add(id(value))
        if hasattr(value, "__self__"):
            reached.append(((*path, "__self__"), value.__self__))
        elif isinstance(value, (list, tuple)) and len(value) < SHORT:
            reached += [((*path, place), item) for place, item in enumerate(value)]
        elif is_walked(value):
            objects.append((path, value))
            reached += [((*path, name), item) for name, item in vars(value).items()]
    return objects


def follow(thing: Any, path: WayFromLoader) -> Any:
    """What attributes and places in lists lead to; None if they lead nowhere."""
    for step in path:
        is_there = not isinstance(step, int) or isinstance(thing, (list, tuple)) and step < len(thing)
        thing = (thing[step] if isinstance(step, int) else getattr(thing, step, None)) if is_there else None
    return thing


def is_walked(value: Any) -> bool:
    """Whether it is a data set, a sampler, or an object of the script's that one of these has; no model."""
    return isinstance(value, (Dataset, Sampler)) or has_attributes(value)


def mark(value: Any) -> Any:
    """What shows that a value has become another."""
    if isinstance(value, NUMBERS_AND_TEXTS):
        return value
    if isinstance(value, COLLECTIONS):
        parts = held_by_collection(value) if len(value) < SHORT else ()
        return id(value), len(value), tuple(parts) if all_numbers_and_texts(parts) else ()
    if is_numeric(value):
        small = value.nbytes <= FEW_BYTES
        return id(value), getattr(value, "_version", 0), pickle.dumps(value) if small else b""
    state = generator_state(value)
    return id(value) if state is None else pickle.dumps(state)


def held_by_collection(container: Any) -> list[Any]:
    """What is in it; of a dict the keys, then the values."""
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def all_numbers_and_texts(parts: Any) -> bool:
    """Whether all are numbers and texts."""
    return all(isinstance(part, NUMBERS_AND_TEXTS) for part in parts)


def is_numeric(value: Any) -> bool:
    """Whether it is a tensor, or an array or a number of numpy's."""
    return isinstance(value, torch.Tensor) or type(value).__module__ == "numpy" and hasattr(value, "nbytes")


def same_mark(first: Any, other: Any) -> bool:
    """Whether two marks are of the same value; not a number is the same as itself."""
    return type(first) is type(other) and bool(first == other or first != first)


def change_of(value: Any) -> tuple[str, Any] | None:
    """What goes to the other ranks: a value, a list's content, a generator's state; None: it stays rank 0's own."""
    if isinstance(value, NUMBERS_AND_TEXTS):
        return "value", value
    if isinstance(value, COLLECTIONS):
        return ("content", value) if all_numbers_and_texts(held_by_collection(value)) else None
    state = generator_state(value)
    if state is not None:
        return "state", state
    if isinstance(value, tuple):
        return ("value", value) if is_sendable(value) else None
    return ("value", value) if is_numeric(value) and value.nbytes <= MANY_BYTES else None
