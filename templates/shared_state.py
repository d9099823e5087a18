"""What the replicas of a module share on the host: lists, dicts and objects that a forward or a hook fills."""

import array
import copy
import functools
import queue
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
import torch.distributed

from .outputs import TensorMeta, meta_of
from .parted import RowsOnRanks
from .process import own_rank
from .rows import as_bytes

PLAIN_KINDS = (type(None), bool, int, float, complex, str, bytes)
CONTAINERS = (list, dict, set, deque, bytearray, array.array)
FUNCTIONS = (FunctionType, MethodType, functools.partial, staticmethod, classmethod, property)


@dataclass(frozen=True)
class KnownObject:
    """Something that all ranks have had before."""

    place: int


@dataclass(frozen=True)
class NewTensor:
    """A tensor that a replica has put there."""

    rank: int
    meta: TensorMeta


@dataclass(frozen=True)
class NewContainer:
    """A container that a replica has put there: an empty one of its kind, and what is in it."""

    empty: Any
    content: Any


class SharedState:
    """The containers that a module's forward and hooks can reach, handed from rank to rank.

    DataParallel's replicas are threads of one process: one after another they fill the same list. Here each rank
    gets it as the rank before has left it, and in the end all ranks hold what the last one left.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.containers: list[Any] = []
        self.known: list[Any] = []
        self.bits: dict[int, torch.Tensor] = {}
        self.arrays: list[tuple[Any, Any]] = []
        self.generators: list[Any] = []
        self.labels: dict[int, Any] = {}
        for container in shared_containers(module):
            self.learn(container)
        self.fresh: list[torch.Tensor] = []
        self.values: dict[NewTensor, torch.Tensor] = {}
        self.last_contents: Any = None

    def learn(self, value: Any) -> None:
        """Number something that all ranks have, and what is in it."""
        if isinstance(value, PLAIN_KINDS) or id(value) in self.labels:
            return
        if type(value).__module__ == "numpy":
            if is_array(value):
                self.labels[id(value)] = KnownObject(len(self.known))
                self.known.append(value)
                self.arrays.append((value, value.copy()))
            return
        if generator_state(value) is not None:
            self.generators.append(value)
        self.labels[id(value)] = KnownObject(len(self.known))
        self.known.append(value)
        if isinstance(value, torch.Tensor) and not isinstance(value, RowsOnRanks):
            self.bits[len(self.known) - 1] = bits_of(value)
        if isinstance(value, queue.Queue):
            self.learn(value.queue)
        elif has_attributes(value):
            self.learn(vars(value))
        if isinstance(value, CONTAINERS):
            self.containers.append(value)
        if isinstance(value, (*CONTAINERS, tuple)):
            for item in value.values() if isinstance(value, dict) else value:
                self.learn(item)

    def changes(self) -> Any:
        """What the containers hold now, for the other ranks, and which tensors and arrays have changed in place."""
        changed = [
            (place, self.known[place].shape)
            for place, bits in self.bits.items()
            if not torch.equal(bits_of(self.known[place]), bits)
        ]
        content = [self.describe_content(container) for container in self.containers]
        arrays = {
            place: numbers
            for place, (numbers, before) in enumerate(self.arrays)
            if numbers.tobytes() != before.tobytes()
        }
        return changed, arrays, [generator_state(generator) for generator in self.generators], content

    def describe_content(self, container: Any) -> Any:
        if isinstance(container, dict):
            return [(key, self.describe(item)) for key, item in container.items()]
        return [self.describe(item) for item in container]

    def describe(self, value: Any) -> Any:
        if isinstance(value, PLAIN_KINDS):
            return value
        if id(value) not in self.labels and isinstance(value, torch.Tensor):
            meta = meta_of(value, len(self.fresh))
            self.labels[id(value)] = NewTensor(own_rank(), meta)
            self.fresh.append(value)
            self.values[self.labels[id(value)]] = value
        if id(value) in self.labels:
            return self.labels[id(value)]
        if isinstance(value, tuple):
            return NewContainer((), self.describe_content(value))
        if isinstance(value, CONTAINERS):
            empty = copy.copy(value)
            clear(empty)
            return NewContainer(empty, self.describe_content(value))
        return value

    def follow(self, turn: int, news: Any, device: torch.device) -> None:
        """Hold what the rank has left whose turn it was."""
        changed, arrays, states, contents = news
        for place, numbers in arrays.items():
            self.arrays[place][0][...] = numbers
        for generator, state in zip(self.generators, states, strict=True):
            set_generator_state(generator, state)
        for place, shape in changed:
            self.follow_change(turn, self.known[place], shape)
        for fresh in fresh_in(contents):
            if fresh.rank == turn and (turn != own_rank() or fresh in self.values):
                self.values[fresh] = self.sent(fresh, device)
        self.last_contents = contents
        if turn != own_rank():
            self.hold(contents)

    def follow_change(self, turn: int, tensor: torch.Tensor, shape: torch.Size) -> None:
        """Give a tensor the values that a rank has put into it, and the shape that they have."""
        mine = (
            tensor.detach()
            if turn == own_rank()
            else torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
        )
        value = mine.contiguous()
        torch.distributed.broadcast(as_bytes(value), turn)
        if turn != own_rank():
            if tensor.shape != shape:
                with torch.no_grad():
                    tensor.resize_(shape)
            tensor.data.copy_(value)

    def sent(self, fresh: NewTensor, device: torch.device) -> torch.Tensor:
        """A tensor of another rank, without its gradient."""
        if fresh.rank == own_rank():
            torch.distributed.broadcast(
                as_bytes(self.values[fresh].detach().to(device).contiguous()), fresh.rank
            )
            return self.values[fresh]
        value = torch.empty(fresh.meta.shape, dtype=fresh.meta.dtype, device=device)
        torch.distributed.broadcast(as_bytes(value), fresh.rank)
        self.labels[id(value)] = fresh
        return value

    def finish(self, join: Callable[[int, TensorMeta], torch.Tensor]) -> None:
        """Hold what the last rank has left; join(rank, meta) is a rank's tensor with its gradient."""
        for fresh in fresh_in(self.last_contents):
            if fresh.meta.needs_gradient:
                self.values[fresh] = join(fresh.rank, fresh.meta)
        self.hold(self.last_contents)

    def hold(self, contents: Any) -> None:
        for container, content in zip(self.containers, contents, strict=True):
            self.fill(container, content)

    def fill(self, container: Any, content: Any) -> Any:
        """Put a described content into a container."""
        if isinstance(container, tuple):
            return tuple(self.rebuilt(item) for item in content)
        if isinstance(container, dict):
            items: Any = {key: self.rebuilt(item) for key, item in content}
        else:
            items = [self.rebuilt(item) for item in content]
        clear(container)
        if isinstance(container, (dict, set)):
            container.update(items)
        else:
            container.extend(items)
        return container

    def rebuilt(self, value: Any) -> Any:
        if isinstance(value, KnownObject):
            return self.known[value.place]
        if isinstance(value, NewTensor):
            return self.values[value]
        return self.fill(copy.copy(value.empty), value.content) if isinstance(value, NewContainer) else value


def fresh_in(content: Any) -> Iterator[NewTensor]:
    """The new tensors in what a rank sent, each once."""
    fresh: dict[NewTensor, None] = {}
    queue = [content]
    while queue:
        value = queue.pop(0)
        if isinstance(value, NewTensor):
            fresh[value] = None
        elif isinstance(value, NewContainer):
            queue.append(value.content)
        elif isinstance(value, (list, tuple)):
            queue += value
    return iter(fresh)


def shared_containers(module: torch.nn.Module) -> Iterator[Any]:
    """Containers, tensors and arrays among the attributes of a module's parts, and those that their forwards and
    hooks refer to."""
    usual = vars(torch.nn.Module())
    seen: set[int] = set()
    for part in module.modules():
        for name, value in vars(part).items():
            if name not in usual:
                yield from containers_at(value, seen)
        for hooks in (part._forward_hooks, part._forward_pre_hooks):
            for hook in list(hooks.values()):
                yield from containers_at(hook, seen)
        for kind in type(part).__mro__:
            if is_of_script(kind) or kind is type(part):
                yield from containers_of_class(kind, seen)


def is_of_script(kind: type) -> bool:
    """Whether a class is the script's own, and of no library."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return kind is not object and "site-packages" not in file and "dist-packages" not in file


def containers_of_class(kind: type, seen: "set[int]") -> Iterator[Any]:
    """What all objects of a class share, and what its methods can reach."""
    for name, value in vars(kind).items() if not kind.__module__.startswith("torch.") else ():
        if isinstance(value, FUNCTIONS) or not name.startswith("__"):
            yield from containers_at(value, seen)


def containers_of(function: Any, seen: "set[int]") -> Iterator[Any]:
    """The containers that a function can reach: its object's attributes, its closure, the globals that it names."""
    if id(function) in seen or isinstance(function, (torch.nn.Module, type)):
        return
    seen.add(id(function))
    if isinstance(function, (staticmethod, classmethod)):
        yield from containers_of(function.__func__, seen)
    elif isinstance(function, (property, functools.cached_property)):
        yield from containers_of(function.fget if isinstance(function, property) else function.func, seen)
    elif isinstance(function, MethodType):
        if not isinstance(function.__self__, (torch.nn.Module, type)):
            yield vars(function.__self__)
        yield from containers_of(function.__func__, seen)
    elif isinstance(function, functools.partial):
        for value in (*function.args, *function.keywords.values(), function.func):
            yield from containers_at(value, seen)
    elif isinstance(function, FunctionType):
        cells = (cell.cell_contents for cell in function.__closure__ or () if cell_is_full(cell))
        named = (function.__globals__.get(name) for name in function.__code__.co_names)
        given = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        for value in (*cells, *named, *given):
            yield from containers_at(value, seen)


def containers_at(value: Any, seen: "set[int]") -> Iterator[Any]:
    """A value itself, if it holds something, or what it can reach, if it is a function of the script."""
    holds = isinstance(value, (*CONTAINERS, tuple, queue.Queue, torch.Tensor)) or is_array(value)
    if holds or generator_state(value) is not None:
        yield value
        if isinstance(value, (dict, list, tuple)):  # a table of functions
            for item in value.values() if isinstance(value, dict) else value:
                yield from containers_of(item, seen) if isinstance(item, FUNCTIONS) else ()
    elif has_attributes(value):
        yield value
        yield from containers_of(vars(type(value)).get("__call__"), seen)
    elif not (getattr(value, "__module__", "") or "").startswith("torch"):
        yield from containers_of(value, seen)


def generator_state(value: Any) -> Any:
    """The state of a generator of random numbers; None for anything else."""
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    if type(value).__module__.startswith("numpy.random"):
        return value.bit_generator.state if hasattr(value, "bit_generator") else value.get_state()
    return None


def set_generator_state(generator: Any, state: Any) -> None:
    """Let a generator go on from a state."""
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor's bytes: `tensor.data.add_(1)` and `tensor.numpy()[0] = 1` leave its version as it is."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return torch.tensor([tensor._version, *tensor.shape])
    return as_bytes(tensor.detach().contiguous()).clone()


def clear(container: Any) -> None:
    """Take everything out; an array has no method for it before Python 3.13."""
    if isinstance(container, array.array):
        del container[:]
    else:
        container.clear()


def is_array(value: Any) -> bool:
    """Whether this is an array of numpy, which a forward may change in place."""
    return (
        type(value).__module__ == "numpy"
        and hasattr(value, "tobytes")
        and hasattr(value, "__array_finalize__")  # which numbers of numpy lack
    )


def has_attributes(value: Any) -> bool:
    """Whether this is an object of the script's own, whose methods may change it; and not one that each rank has."""
    others = (torch.nn.Module, torch.Tensor, type, ModuleType, *FUNCTIONS)
    foreign = ("torch", "numpy", "builtins", "_thread", "threading", "functools")
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, (*others, *CONTAINERS))
        and not type(value).__module__.startswith(foreign)
        and not hasattr(type(value), "differs_by_rank")
    )


def cell_is_full(cell: Any) -> bool:
    """Whether a variable of a closure has a value yet."""
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
