"""Forwards that may fill what outlives them: as soon as one does, ranks run their replicas one after another.

Each begins with what the one before has left.
"""

import array
import dis
import functools
import io
import logging
import os
import pickle
import random
import sys
import threading
import weakref
import zlib
from collections import deque
from contextlib import contextmanager, redirect_stdout, suppress
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Callable, Dict, Iterator, List, Tuple
from unittest import mock

import torch
import torch.distributed as dist

from .broadcast import exchange_numbers
from .files import FILES
from .meeting import raise_on_all
from .model import WholeBatch
from .one_rank import FromRank, share_tree
from .replicas import make_replica, share_tensors
from .streams import host_streams, set_host_streams
from .trees import map_tensors, tensors_of
from .writing import own_parameters


class WholeBatchInTurns(WholeBatch):
    """WholeBatch for a model whose forward or hooks may print, write lines, or fill lists, counters, objects.

    What rank r's leaves there is told to all before the next one runs, as replicas of one process see it. It costs the
    time that ranks wait for each other, from the first forward on that leaves anything.
    """

    stands_for_data_parallel = True

    def run_replica(self, replica: Any, has_rows: bool, inputs: Any, kwargs: Any) -> Any:
        return run_in_turns(self.module, replica, has_rows, inputs, kwargs)


LEAVING: Any = weakref.WeakSet()  # modules whose forwards have left something


def run_in_turns(module: torch.nn.Module, replica: Any, has_rows: bool, inputs: Any, kwargs: Any) -> Any:
    """The outputs of this rank's replica of a module, which runs in its turn once forwards leave anything."""
    memory, outputs, errors = Reached(module, [*inputs, *kwargs.values()]), None, []
    shares_all = memory.reaches_modules
    if module not in LEAVING and memory.can_go_back():
        outputs, is_right = run_at_once(module, memory, replica, has_rows, inputs, kwargs)
        if is_right:
            return outputs
    LEAVING.add(module)
    copies = own_parameters(replica, shares_all)
    for rank in range(dist.get_world_size()):
        news: Any = None
        if rank == dist.get_rank():
            with kept_lines() as lines:
                try:
                    outputs = replica(*inputs, **kwargs)
                except Exception as error:
                    errors.append(error)
            left = memory.news(has_rows, errors)
            news = left, lines if has_rows else None, memory.new
        left, lines_there, tensors = share_tree(news, rank, copies)
        try:
            write_lines(lines_there or [])
            memory.follow(rank, left, tensors)
        except Exception as error:
            errors.append(error)
        if shares_all and lines_there is not None:
            share_tensors([*module.parameters(), *module.buffers()], rank)
    memory.connect(copies)
    share_tensors([*module.parameters()])  # a forward may write into their .data: replica 0's stay
    raise_on_all(errors[0] if errors and has_rows else None)
    return outputs


def run_at_once(
    module: torch.nn.Module, memory: "Reached", replica: Any, has_rows: bool, inputs: Any, kwargs: Any
) -> Tuple[Any, bool]:
    """What a replica gives if all run at once, and whether no rank's has left anything; else all is as it was."""
    held = [*module.parameters(), *replica.buffers()]
    before, streams = [tensor.detach().clone() for tensor in held], host_streams()
    on_device = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    spare, given = copy_replica(replica), map_tensors(torch.clone, (inputs, kwargs))
    outputs, has_failed = None, True
    with kept_lines() as lines, suppress(Exception):
        outputs, has_failed = spare(*given[0], **given[1]), False
    left = (
        memory.go_back(),
        any(map(is_heard, lines)),
        any(not tensor.is_inference() and tensor._version for tensor in tensors_of(given)),
        not all(map(torch.equal, module.parameters(), before)),
    )
    is_right = not any(number for (number,) in exchange_numbers([has_failed or has_rows and any(left)]))
    for tensor, old in () if is_right and has_rows else zip(held, before):
        tensor.data.copy_(old)
    if not is_right:
        set_host_streams(streams)
        if on_device is not None:
            torch.cuda.set_rng_state(on_device)
    return outputs, is_right


def copy_replica(replica: Any) -> Any:
    """Another one: what a forward sets on it is not on the first."""
    spare = make_replica(replica, {})
    for part, twin in zip(replica.modules(), spare.modules()):
        twin._former_parameters = part._former_parameters
    return spare


@contextmanager
def kept_lines() -> Iterator[List[Any]]:
    """What a replica prints, logs, and writes to files that rank 0 has: for `write_lines` on all ranks."""
    kept: List[Any] = []
    printed = io.StringIO()
    printed.write = kept.append  # type: ignore[assignment]

    def keep(logger: logging.Logger, record: logging.LogRecord) -> None:
        if record.exc_info:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.msg, record.args, record.exc_info = record.getMessage(), None, None
        kept.append(record)

    kept_logs = mock.patch.multiple(logging.Logger, handle=keep, isEnabledFor=lambda *given: True)
    with redirect_stdout(printed), kept_logs:
        for file in FILES.values():
            file.kept = kept
        yield kept
    for file in FILES.values():
        file.kept = None


def write_lines(lines: List[Any]) -> None:
    """All ranks print and log what one has kept; rank 0's is seen."""
    for line in filter(is_heard, lines):
        if isinstance(line, str):
            sys.stdout.write(line)
        elif isinstance(line, logging.LogRecord):
            logging.getLogger(line.name).handle(line)
        elif dist.get_rank() == 0:
            path, data = line
            file = FILES[path].file
            file.flush() if data is None else file.write(data)


def is_heard(line: Any) -> bool:
    return not isinstance(line, logging.LogRecord) or logging.getLogger(line.name).isEnabledFor(line.levelno)


class Reached:
    """All that a forward can reach and change, numbered alike on all ranks, with a picture of what is in each thing."""

    def __init__(self, module: torch.nn.Module, given: List[Any]) -> None:
        self.things: List[Any] = []
        self.numbers: Dict[int, int] = {}  # by the id of a thing
        self.new: List[torch.Tensor] = []  # tensors that the forward of this turn has put there
        self.graphs: Dict[int, int] = {}  # by the number of a tensor with a gradient: the rank that made it
        for tensor in (*module.parameters(), *module.buffers()):
            self.add(tensor)
        self.looked_after = len(self.things)  # by the wrapper
        self.reaches_modules = False  # beside the replica: `self.layers = [self.fc]`, a hook that is a method
        hooks = (*HOOKS._global_forward_hooks.values(), *HOOKS._global_forward_pre_hooks.values())
        shared = [each for each in given if not isinstance(each, COPIED) or not len(each)]
        self.learn([*module.modules(), *hooks, *shared])
        self.pictures = self.look()

    def add(self, thing: Any) -> None:
        self.numbers.setdefault(id(thing), len(self.things))
        self.things.append(thing)

    def learn(self, things: List[Any]) -> None:
        """Number things, and what can be reached from them."""
        pending = things[::-1]
        while pending:
            thing = pending.pop()
            if isinstance(thing, PLAIN) or id(thing) in self.numbers:
                continue
            if is_of_one_process(thing):
                advice = "keep a list, and a place in it"
                raise RuntimeError(f"a forward can reach {thing!r}, which ranks cannot share: {advice}")
            self.add(thing)
            content = inside(content_of(thing))
            self.reaches_modules |= any(map(keeps_tensors, content))
            pending += content[::-1]

    def look(self) -> List[bytes]:
        return [self.dump(content_of(thing)) for thing in self.things[self.looked_after :]]

    def changes(self) -> Dict[int, bytes]:
        """What has changed since the last pictures, with the old ones."""
        changed: Dict[int, bytes] = {}
        for number, old in enumerate(self.pictures, self.looked_after):
            with suppress(RuntimeError):  # of what no picture can have
                if self.dump(content_of(self.things[number])) == old:
                    continue
            changed[number] = old
        return changed

    def can_go_back(self) -> bool:
        """Not where modules beside the replica are reached, or a set with something in it: its pop() goes on."""
        return not self.reaches_modules and not any(isinstance(each, set) and each for each in self.things)

    def go_back(self) -> bool:
        """Whether anything has changed since the last pictures; it is as it was there now."""
        changed = self.changes()
        for number, picture in changed.items():
            put(self.things[number], self.load(picture))
        self.new = []
        return bool(changed)

    def news(self, has_rows: bool, errors: List[Exception]) -> bytes:
        """What this rank's forward has left, for the others; nothing where it has run without rows."""
        contents: Dict[int, Any] = {}
        try:
            if has_rows:
                contents = {number: content_of(self.things[number]) for number in self.changes()}
            else:
                self.go_back()
            return self.dump((self.kinds(), contents))
        except Exception as error:
            errors.append(error)
            return self.dump((self.kinds(), {}))

    def follow(self, rank: int, news: bytes, tensors: List[torch.Tensor]) -> None:
        """Hold what a rank's forward has left."""
        is_own, kinds = rank == dist.get_rank(), self.kinds()
        if not is_own:
            self.new = [stand_in(tensor) for tensor in tensors]
        their_kinds, contents = self.load(news)
        if their_kinds != kinds:
            raise RuntimeError("a forward can reach other things on this rank than on another")
        for number, content in ({} if is_own else contents).items():
            put(self.things[number], content)
        for tensor in self.new:
            if tensor.requires_grad:
                self.graphs[len(self.things)] = rank
            self.add(tensor)
        self.new = []
        self.learn([each for number in contents for each in inside(content_of(self.things[number]))])
        self.pictures = self.look()

    def kinds(self) -> int:
        return zlib.crc32(" ".join(type(thing).__name__ for thing in self.things).encode())

    def connect(self, ties: List[torch.Tensor]) -> None:
        """Give tensors that forwards have kept their way back to the rank that made them."""
        for number, rank in self.graphs.items():
            tensor = self.things[number]
            own = tensor if rank == dist.get_rank() else tensor.detach()
            self.things[number] = FromRank.apply(rank, True, own, *ties)
        holders = [thing for thing in self.things if self.graphs and inside(content_of(thing))]
        for thing in holders:
            put(thing, self.load(self.dump(content_of(thing))))

    def dump(self, content: Any) -> bytes:
        file = io.BytesIO()
        try:
            Writer(file, self.name_of).dump(content)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise RuntimeError(f"a forward keeps what other ranks cannot have: {error}") from error
        return file.getvalue()

    def name_of(self, thing: Any) -> Any:
        """What stands in a picture for a thing that all ranks have, and for a new tensor."""
        if id(thing) in self.numbers:
            return self.numbers[id(thing)]
        if not isinstance(thing, torch.Tensor):
            return None
        place = next((place for place, each in enumerate(self.new) if each is thing), len(self.new))
        self.new[place:] = self.new[place:] or [thing]
        return "new", place

    def load(self, picture: bytes) -> Any:
        return Reader(io.BytesIO(picture), self.things, self.new).load()


class Writer(pickle.Pickler):
    def __init__(self, file: Any, name_of: Callable[[Any], Any]) -> None:
        super().__init__(file, 4)
        self.name_of = name_of

    def persistent_id(self, thing: Any) -> Any:
        return self.name_of(thing)


class Reader(pickle.Unpickler):
    def __init__(self, file: Any, things: List[Any], new: List[torch.Tensor]) -> None:
        super().__init__(file)
        self.things, self.new = things, new

    def persistent_load(self, name: Any) -> Any:
        return self.new[name[1]] if isinstance(name, tuple) else self.things[name]


PLAIN = (type(None), bool, int, float, complex, str, bytes)
WRAPPED = (
    (MethodType, ("__self__", "__func__")),
    (functools.partial, ("func", "args", "keywords")),
    ((staticmethod, classmethod), ("__func__",)),
    (property, ("fget", "fset")),
    (functools.cached_property, ("func",)),
)
CACHED = type(functools.lru_cache(maxsize=None)(len))
HOOKS: Any = torch.nn.modules.module
COPIED = (torch.Tensor, tuple, list, dict)  # for each replica; but for empty ones
KINDS = (torch.Tensor, torch.nn.Parameter)
OF_ALL_MODULES = {*vars(torch.nn.Module())}
SEALED = {"torch", "numpy", "builtins", "functools", "logging", "weakref", "_io", "_thread", "_weakref"}


def keeps_tensors(thing: Any) -> bool:
    """A parameter, or a module with some, or with buffers: a loss has none."""
    if isinstance(thing, torch.nn.Module):
        return [*thing.parameters(), *thing.buffers()] != []
    return isinstance(thing, torch.nn.Parameter)


def content_of(thing: Any) -> Any:
    """What is in a thing: a dict or a list of others, or a tuple that says its state; None for what does not change."""
    kind = type(thing)
    if isinstance(thing, torch.nn.Module):  # of which a replica is a copy, but hooks set attributes of itself
        hooks = [*thing._forward_hooks.values(), *thing._forward_pre_hooks.values()]
        named = {name: each for name, each in vars(thing).items() if name not in OF_ALL_MODULES}
        kinds = [] if hasattr(thing, "stands_for_data_parallel") else [kind]
        return {**named, **dict(enumerate([*kinds, *hooks]))}
    if isinstance(thing, torch.Tensor):
        return (thing.shape, bytes_of(thing)) if kind in KINDS and thing.layout is torch.strided else None
    if is_array(thing):
        return (thing.shape, thing.tobytes())
    if isinstance(thing, (set, bytearray, array.array)):
        return (*thing,)
    if isinstance(thing, (dict, list, deque, tuple)):
        items = [each for pair in thing.items() for each in pair] if isinstance(thing, dict) else thing
        return [getattr(thing, "__dict__", None), *items]
    if has_stream(thing):
        return (stream_of(thing),)
    for wrapped, names in WRAPPED:
        if isinstance(thing, wrapped):
            return [getattr(thing, name) for name in names]
    if isinstance(thing, CACHED):
        return {"function": thing.__wrapped__, "misses": thing.cache_info().misses}
    if isinstance(thing, FunctionType):
        return variables_of(thing) if is_of_script(thing.__module__) else None
    if isinstance(thing, (type, ModuleType)):
        if not is_of_script(thing.__module__ if isinstance(thing, type) else thing.__name__):
            return None
        bases = thing.__bases__ if isinstance(thing, type) else ()
        return {
            **{
                name: each
                for name, each in vars(thing).items()
                if isinstance(each, FunctionType) or name[:2] != "__"
            },
            **dict(enumerate(bases)),
        }
    is_open = hasattr(thing, "__dict__") and kind.__module__.partition(".")[0] not in SEALED
    return [vars(thing), kind] if is_open and not hasattr(kind, "differs_by_rank") else None


def put(thing: Any, content: Any) -> None:
    """Let a thing hold what another rank's holds."""
    if isinstance(thing, torch.Tensor):
        if thing.shape != content[0]:
            thing.resize_(content[0])
        thing.data.copy_(tensor_of(content[1]).view(thing.dtype).view(content[0]))
    elif is_array(thing):
        thing[...] = sys.modules["numpy"].frombuffer(content[1], thing.dtype).reshape(content[0])
    elif isinstance(thing, (set, dict, list, deque, bytearray)):
        items = content if isinstance(content, tuple) else content[1:]
        thing.clear()
        if isinstance(thing, dict):
            for key, value in zip(items[::2], items[1::2]):  # update() of a Counter adds
                thing[key] = value
        else:
            (thing.update if isinstance(thing, set) else thing.extend)(items)
    elif isinstance(thing, array.array):
        thing[:] = array.array(thing.typecode, content)
    elif has_stream(thing):
        set_stream(thing, content[0])
    elif isinstance(thing, CACHED):
        raise RuntimeError(
            f"a forward calls {thing.__wrapped__.__name__}, whose cache ranks cannot share: take the cache away"
        )
    elif isinstance(content, dict):
        for name, each in content.items():
            put_variable(thing, name, each)


def put_variable(thing: Any, name: Any, value: Any) -> None:
    if isinstance(thing, FunctionType):
        if isinstance(name, int):
            thing.__closure__[name].cell_contents = value  # type: ignore[index]
        elif isinstance(name, str):
            thing.__globals__[name] = value
    elif isinstance(name, str) and vars(thing).get(name) is not value:
        if isinstance(thing, torch.nn.Module):
            vars(thing)[name] = value
        else:
            setattr(thing, name, value)


def variables_of(function: Any) -> Dict[Any, Any]:
    """What a function holds: variables of functions around it by their places, globals by their names, and the rest."""
    variables: Dict[Any, Any] = {}
    for place, cell in enumerate(function.__closure__ or ()):
        if cell != CellType():  # one without a value
            variables[place] = cell.cell_contents
    variables.update(
        {
            name: function.__globals__[name]
            for name in globals_of(function.__code__)
            if name in function.__globals__
        }
    )
    variables["", 0] = vars(function)
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return {**variables, **{("", place): each for place, each in enumerate(defaults, 1)}}


@functools.lru_cache(maxsize=None)
def globals_of(code: CodeType) -> List[str]:
    names = [each.argval for each in dis.get_instructions(code) if each.opname.endswith(("_GLOBAL", "_NAME"))]
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in globals_of(each)]
    return sorted({*names, *inner})


def inside(content: Any) -> List[Any]:
    return [*content.values()] if isinstance(content, dict) else content if isinstance(content, list) else []


def is_of_script(home: Any) -> bool:
    """Whether a file is the script's own, and no library's."""
    file = getattr(sys.modules.get(home or ""), "__file__", None) or "site-packages"
    libraries = ("site-packages", "dist-packages", os.path.dirname(os.__file__))
    return home == "__main__" or home != __name__ and not any(library in file for library in libraries)


def is_array(thing: Any) -> bool:
    is_numpys = type(thing).__module__ == "numpy" and hasattr(thing, "__array_finalize__")
    return is_numpys and not thing.dtype.hasobject


def is_of_one_process(thing: Any) -> bool:
    """Iterators, queues without a list in them, variables of a thread."""
    is_of_python = type(thing).__module__ in ("builtins", "itertools", "_queue")
    is_consumed = hasattr(type(thing), "__next__") or hasattr(type(thing), "get_nowait")
    return is_of_python and is_consumed or isinstance(thing, threading.local)


def has_stream(thing: Any) -> bool:
    is_numpys = type(thing).__module__.startswith("numpy.random") and hasattr(thing, "shuffle")
    return isinstance(thing, (torch.Generator, random.Random)) or is_numpys


def stream_of(generator: Any) -> Any:
    """The state of a generator of random numbers."""
    if isinstance(generator, torch.Generator):
        return bytes_of(generator.get_state())
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.bit_generator.state if hasattr(generator, "bit_generator") else generator.get_state()


def set_stream(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(tensor_of(state))
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def bytes_of(tensor: torch.Tensor) -> bytes:
    # a copy: numpy() would fix the size of its storage; and one element of it may have any stride
    flat = tensor.detach().cpu().clone(memory_format=torch.contiguous_format).reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def tensor_of(content: bytes) -> torch.Tensor:
    return (
        torch.frombuffer(bytearray(content), dtype=torch.uint8)
        if content
        else torch.empty(0, dtype=torch.uint8)
    )


def stand_in(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of another rank, until it gets its way back there."""
    own = tensor.detach()
    if tensor.requires_grad:
        own.requires_grad_().register_hook(refuse_gradient)
    return own


def refuse_gradient(gradient: torch.Tensor) -> None:
    raise RuntimeError(
        "a forward computes with a tensor that another replica's forward has kept, and wants its gradient: detach it"
    )
