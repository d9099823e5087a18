"""Train a small ResNet on CIFAR-shaped images with DataParallel."""

import argparse
import os

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader

from data import test_set, train_set
from model import ResNet


# --- helpers copied from dp2ddp.templates (arguments, outputs, process, replicas, rows, whole, ddp, voice, feed, spread): yours now, they need torch alone

import atexit
import contextlib
import contextvars
import copy
import copyreg
import datetime
import gc
import inspect
import io
import pickle
import random
import signal
import sys
import torch.distributed
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from torch._utils import ExceptionWrapper
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import IterableDataset
from torch.utils.data._utils import fetch, pin_memory
from types import TracebackType
from typing import Any, TypeVar


# Cuts a tensor: (number of chunks, own chunk).
Take = Callable[[torch.Tensor], tuple[int, torch.Tensor]]


@dataclass(frozen=True)
class Part:
    """What one replica is called with, and how many replicas there are."""

    inputs: tuple[Any, ...]
    kwargs: dict[str, Any]
    replicas: int


def split_arguments(
    inputs: tuple[Any, ...], kwargs: dict[str, Any], rank: int, world: int, take: Take
) -> Part:
    """The arguments of replica number rank, by DataParallel's rules; take(tensor) is (number of chunks, own chunk).

    Tensors are cut into chunks wherever they are in tuples, lists and dicts; anything else goes to every
    replica as it is. Arguments with fewer chunks set the number of replicas, and rows beyond are dropped.
    Keyword arguments alone may call for more replicas, which then get no positional arguments.
    """
    input_chunks, own_inputs = split_argument(inputs, world, take) if inputs else (0, ())
    kwarg_chunks, own_kwargs = split_argument(kwargs, world, take) if kwargs else (0, {})
    if not input_chunks and not kwarg_chunks:
        return Part((), {}, 1)
    if input_chunks < kwarg_chunks:
        return Part(own_inputs if rank < input_chunks else (), own_kwargs, kwarg_chunks)
    if kwarg_chunks < input_chunks and kwarg_chunks >= len(inputs):
        raise AssertionError(
            f"The number of modules {input_chunks} is not equal to "
            f"the number of keyword arguments {kwarg_chunks}"
        )
    return Part(own_inputs, own_kwargs if rank < kwarg_chunks else {}, input_chunks)


def split_argument(value: Any, world: int, take: Take) -> tuple[int, Any]:
    """The number of chunks of an argument, and the own one."""
    if isinstance(value, torch.Tensor):
        return take(value)
    if not isinstance(value, (tuple, list, dict)) or not value:
        return world, value
    items = value.items() if isinstance(value, dict) else value
    counts, own = zip(*(split_argument(item, world, take) for item in items), strict=True)
    kind = type(value)
    return min(counts), own if kind is tuple else kind(*own) if hasattr(value, "_fields") else kind(own)


def chunk_sizes(tensor: torch.Tensor, world: int, dim: int) -> tuple[int, ...]:
    """Rows of each chunk as torch.chunk cuts them, which may be fewer than ranks: 5 over 4 is 2, 2, 1."""
    return tuple(chunk.shape[dim] for chunk in tensor.detach().chunk(world, dim))


def rank_sizes(tensor: torch.Tensor, world: int, dim: int) -> tuple[int, ...]:
    """Rows of each rank, zeros for ranks that get none: 5 over 4 is 2, 2, 1, 0."""
    sizes = chunk_sizes(tensor, world, dim)
    return sizes + (0,) * (world - len(sizes))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors that DataParallel finds in an argument, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


@dataclass(frozen=True)
class Face:
    """What the other ranks need to know of a tensor in a replica's output."""

    place: int
    shape: torch.Size
    dtype: torch.dtype
    needs_gradient: bool


@dataclass(frozen=True)
class Branch:
    """A dict, list, tuple or other iterable in a replica's output."""

    kind: type
    keys: tuple[Any, ...]
    items: tuple[Any, ...]


@dataclass(frozen=True)
class Opaque:
    """Anything else in a replica's output: DataParallel cannot gather it."""

    kind: type


def describe_output(output: Any, tensors: list[torch.Tensor]) -> Face | Branch | Opaque | None:
    """A replica's output as the other ranks may see it; its tensors go to the list."""
    if isinstance(output, torch.Tensor):
        tensors.append(output)
        return Face(len(tensors) - 1, output.shape, output.dtype, output.requires_grad)
    if output is None:
        return None
    if isinstance(output, dict):
        items = tuple(describe_output(item, tensors) for item in output.values())
        return Branch(type(output), tuple(output), items)
    if isinstance(output, str) or not hasattr(output, "__iter__"):
        return Opaque(type(output))
    return Branch(type(output), (), tuple(describe_output(item, tensors) for item in output))


def gather_outputs(found: Sequence[Any], join: Callable[[Sequence[Face]], torch.Tensor]) -> Any:
    """The replicas' described outputs as one, by DataParallel's rules: the first replica sets the form."""
    first = found[0]
    if isinstance(first, Face):
        return join(found)
    if first is None:
        return None
    if isinstance(first, Opaque):
        if first.kind is str:
            return str(map(str, ()))  # what DataParallel makes of it: '<map object at ...>'
        raise TypeError(f"'{first.kind.__name__}' object is not iterable")
    if issubclass(first.kind, dict):
        return first.kind((key, gather_outputs(items, join)) for key, items in by_key(found))
    items = (gather_outputs(items, join) for items in zip(*(branch.items for branch in found), strict=True))
    return first.kind._make(items) if hasattr(first.kind, "_make") else first.kind(items)


def by_key(found: Sequence[Branch]) -> list[tuple[Any, list[Any]]]:
    """The replicas' dicts: each key with the item that each replica has for it."""
    if any(len(branch.keys) != len(found[0].keys) for branch in found):
        raise ValueError("All dicts must have the same number of keys")
    dicts = [dict(zip(branch.keys, branch.items, strict=True)) for branch in found]
    return [(key, [each[key] for each in dicts]) for key in found[0].keys]


def joinable_shapes(faces: Sequence[Face], dim: int) -> list[torch.Size]:
    """The shapes of tensors that are to be joined along dim; numbers become vectors of one."""
    shapes = [face.shape for face in faces]
    if dim == 0 and not any(shapes):
        warnings.warn(
            "Was asked to gather along dimension 0, but all input tensors were scalars; "
            "will instead unsqueeze and return a vector.",
            stacklevel=2,
        )
        return [torch.Size([1]) for _ in shapes]
    rests = [(face.dtype, len(face.shape), face.shape[:dim], face.shape[dim:][1:]) for face in faces]
    if any(rest != rests[0] for rest in rests):
        raise RuntimeError(
            f"Gather got tensors of shapes {[tuple(shape) for shape in shapes]} and types "
            f"{[face.dtype for face in faces]}, which cannot be joined along dimension {dim}"
        )
    return shapes


# Environment variable with the process id of a rank. Children inherit it (loader workers, pools,
# subprocesses) and see by it that they are not the rank itself.
RANK_PROCESS = "RANK_PROCESS"


# True while rank 0 does something on its own: whatever runs then must not wait for the other ranks.
ALONE = contextvars.ContextVar("ALONE", default=False)


# How long a rank waits for the others. Rank 0 may evaluate or download alone for longer than torch's half hour;
# a rank that ends is noticed at once (its connections close), so this bounds only ranks that parted ways.
PATIENCE = datetime.timedelta(hours=2)


# Seconds after which the end of a process is forced.
LAST_WAIT = 60


# Bytes that go along with every exchange; what is longer needs a second round.
FRAME = 2048


# Of torch's generators: where this rank's own stood when it joined, and where rank 0's did, which it took over.
JOINED: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}


def join_process_group() -> None:
    """Make this process one rank of the run that torchrun started; without torchrun, do nothing.

    Afterwards every rank has the random streams of rank 0, so that all of them shuffle, augment and
    initialise alike, and only rank 0 is heard: the other ranks' stdout and stderr go nowhere
    (uncaught exceptions do come through). Call it once, as early as possible.
    """
    if RANK_PROCESS in os.environ or "RANK" not in os.environ:
        return
    torch.distributed.init_process_group(choose_backend(), timeout=PATIENCE)
    os.environ[RANK_PROCESS] = str(os.getpid())
    atexit.register(leave_process_group)
    own = random_streams()
    shared = exchange(own)[0]
    set_random_streams(shared)
    JOINED.update({name: (own[name], shared[name]) for name in ("torch", "cuda") if name in own})
    if own_rank() > 0:
        be_quiet()


def choose_backend() -> str:
    """NCCL for tensors on a GPU if each rank has a GPU of its own, gloo for everything else.

    The host's small messages go over gloo in either case, so that they never wait for the GPU.
    """
    if not torch.cuda.is_available():
        return "gloo"
    devices = torch.cuda.device_count()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % devices)
    torch.cuda.init()
    own_device_each = int(os.environ.get("LOCAL_WORLD_SIZE", 1)) <= devices
    return "cpu:gloo,cuda:nccl" if own_device_each and torch.distributed.is_nccl_available() else "gloo"


def has_process_group() -> bool:
    """torch.distributed.is_initialized(), also behind forget_launcher()."""
    return torch.distributed.distributed_c10d.is_initialized()


def is_rank_process() -> bool:
    """Whether this process joined; false in its children, where no other rank can be reached."""
    return os.environ.get(RANK_PROCESS) == str(os.getpid()) and has_process_group()


def world_size() -> int:
    """How many ranks there are to talk to: 1 without torchrun, in child processes, and on rank 0 alone."""
    return torch.distributed.get_world_size() if is_rank_process() and not ALONE.get() else 1


def own_rank() -> int:
    """The number of this rank, 0 if it is the only one."""
    return torch.distributed.get_rank() if world_size() > 1 else 0


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """A block that only one rank runs: inside it, this rank is a world of one."""
    before = ALONE.set(True)
    try:
        yield
    finally:
        ALONE.reset(before)


def exchange(value: Any) -> list[Any]:
    """What every rank brought, in rank order; no rank goes on before all of them came."""
    if world_size() == 1:
        return [value]
    messages = gather_bytes(dump_or_say_why_not(value))
    values = [pickle.loads(message) for message in messages]
    for rank, found in enumerate(values):
        if isinstance(found, pickle.PicklingError):
            raise TypeError(f"rank {rank} cannot send this to the other ranks: {found}")
    return values


def dump_or_say_why_not(value: Any) -> bytes:
    """The pickled value, or the pickled reason: a rank that raised here would leave the others waiting."""
    try:
        return pickle.dumps(value)
    except Exception as error:
        return pickle.dumps(pickle.PicklingError(str(error)))


def gather_bytes(message: bytes) -> list[bytes]:
    """Every rank's message. Up to FRAME bytes travel in one round, with their length in front."""
    content = len(message).to_bytes(8, "little") + message
    frames = gather_equal(content[:FRAME].ljust(FRAME, b"\0"))
    lengths = [8 + int.from_bytes(frame[:8], "little") for frame in frames]
    if max(lengths) > FRAME:
        rests = gather_equal(content[FRAME:].ljust(max(lengths) - FRAME, b"\0"))
        frames = [frame + rest for frame, rest in zip(frames, rests, strict=True)]
    return [frame[8:length] for frame, length in zip(frames, lengths, strict=True)]


def gather_equal(content: bytes) -> list[bytes]:
    """Every rank's bytes, as many of them on each rank."""
    found = [bytearray(len(content)) for _ in range(world_size())]
    places = [torch.frombuffer(place, dtype=torch.uint8) for place in found]
    torch.distributed.all_gather(places, torch.frombuffer(bytearray(content), dtype=torch.uint8))
    return [bytes(place) for place in found]


def random_streams() -> dict[str, Any]:
    """The states of the streams that a script draws from: Python's, numpy's, torch's, the GPU's."""
    streams: dict[str, Any] = {"random": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        streams["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        streams["numpy"] = (name, keys.tobytes(), *rest)
    return streams


def set_random_streams(streams: dict[str, Any]) -> None:
    """Go on from these states; streams that are not named stay as they are."""
    if "random" in streams:
        random.setstate(streams["random"])
    if "torch" in streams:
        torch.set_rng_state(streams["torch"])
    if "cuda" in streams:
        torch.cuda.set_rng_state(streams["cuda"])
    if "numpy" in streams and "numpy" in sys.modules:
        numpy = sys.modules["numpy"]
        name, keys, *rest = streams["numpy"]
        numpy.random.set_state((name, numpy.frombuffer(keys, dtype=numpy.uint32), *rest))


def be_quiet() -> None:
    """Send what this process prints nowhere, by sys.__stdout__ too, except the traceback of what ends it."""
    nowhere = open(os.devnull, "w", encoding="utf-8", errors="ignore")  # noqa: SIM115
    vars(sys).update(stdout=nowhere, stderr=nowhere, __stdout__=nowhere, excepthook=report_exception)


def report_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """sys.excepthook of a quiet rank: the real stderr hears of it."""
    traceback.print_exception(kind, error, trace, file=sys.__stderr__)


def leave_process_group() -> None:
    """Part from the other ranks. Runs by itself at exit, whatever the reason, and never hangs."""
    if not is_rank_process():
        return
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    if hasattr(signal, "alarm"):  # whatever hangs in here, the system's clock ends this process
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LAST_WAIT)
    drop_reducers()
    torch.distributed.destroy_process_group()
    del os.environ[RANK_PROCESS]
    if hasattr(signal, "alarm"):
        signal.alarm(0)


def drop_reducers() -> None:
    """Take every live DistributedDataParallel's reducer away.

    A reducer that outlives the interpreter aborts the process in about one of four runs over gloo
    ("terminate called without an active exception"), with or without destroy_process_group.
    """
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.nn.parallel.DistributedDataParallel):
            drop_reducer(thing)


def drop_reducer(ddp: torch.nn.parallel.DistributedDataParallel) -> None:
    """Take a DistributedDataParallel's reducer away, and with it the hooks on its parameters."""
    vars(ddp).pop("reducer", None)
    vars(ddp).pop("logger", None)


def replica_of(module: torch.nn.Module, stand_ins: Mapping[torch.Tensor, torch.Tensor]) -> torch.nn.Module:
    """A shallow copy of a module that computes with other tensors in place of its parameters and buffers.

    What forward assigns to self stays with the copy, as with DataParallel's replicas.
    """
    replicas = {part: part._replicate_for_data_parallel() for part in module.modules()}
    for part, replica in replicas.items():
        for name, child in part._modules.items():
            if child is not None:
                setattr(replica, name, replicas[child])
        for name, parameter in part._parameters.items():
            if parameter is None:
                replica._parameters[name] = None
            else:
                setattr(replica, name, stand_ins[parameter])
        for name, buffer in part._buffers.items():
            if buffer is not None:
                setattr(replica, name, stand_ins[buffer])
    return replicas[module]


class DeviceStream:
    """The random stream that a device other than the first has under DataParallel.

    torch.manual_seed seeds all devices alike, and from there on each goes its own way: the script draws from
    the first device only, the replica on another device is the only one to draw from that. Here the script
    draws from the same stream on every rank, so on ranks > 0 what the model draws needs a stream of its own.
    Where nobody has set a seed, each device begins at a random one of its own, and so did each rank before it joined.
    It starts anew when the script sets another seed. The same seed once more is noticed only if the script
    has drawn nothing between setting it and calling the model.
    """

    def __init__(self) -> None:
        self.begun = False
        self.seed: int | None = None
        self.state = torch.empty(0)
        self.placed = torch.empty(
            0
        )  # a state that the script has set itself: no seed, which would be for all

    @contextlib.contextmanager
    def drawn_from(self, generator: torch.Generator) -> Iterator[None]:
        """A block in which a generator gives this stream's numbers."""
        self.settle(generator)
        generator.set_state(self.state)
        try:
            yield
        finally:
            self.state = generator.get_state()

    def settle(self, generator: torch.Generator) -> None:
        """Begin anew if the script has seeded the generator since: another seed, or nothing drawn since."""
        if not self.begun:
            self.begin(generator)
        now, seed = generator.get_state(), generator.initial_seed()
        fresh = torch.Generator(generator.device).manual_seed(seed).get_state()
        if not torch.equal(now, self.placed) and (seed != self.seed or torch.equal(now, fresh)):
            self.seed, self.state = seed, fresh

    def begin(self, generator: torch.Generator) -> None:
        """Go on from where the device's generator stood before the rank joined, if no seed has been set."""
        self.begun = True
        own, shared = JOINED.get("cuda" if generator.device.type == "cuda" else "torch", (None, None))
        if own is None or shared is None:
            return
        seeds = [seed_of(state, generator.device) for state in (own, shared)]
        if seeds[0] != seeds[1] == generator.initial_seed():
            self.seed, self.state, self.placed = seeds[1], own, shared

    def place(self, generator: torch.Generator, state: torch.Tensor) -> None:
        """Set the script's own state, which is that of the first device, and leave this stream as it is."""
        self.settle(generator)
        generator.set_state(state)
        self.seed, self.placed = generator.initial_seed(), generator.get_state()


def seed_of(state: torch.Tensor, device: torch.device) -> int:
    """The seed that a generator with this state began at."""
    generator = torch.Generator(device)
    generator.set_state(state)
    return generator.initial_seed()


def default_generator(device: torch.device) -> torch.Generator:
    """The generator that a module on this device draws from."""
    if device.type == "cuda":
        return torch.cuda.default_generators[torch.cuda.current_device()]
    return torch.default_generator


def changed_streams(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the random streams that something was drawn from since."""
    return {name: state for name, state in now.items() if not same_state(state, before.get(name))}


def same_state(one: Any, other: Any) -> bool:
    """Whether two states of a random stream are the same."""
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


def concatenate_ranks(own: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> torch.Tensor:
    """torch.cat of every rank's tensor along dim; rank r brings sizes[r] rows, which may be none.

    Travels as bytes, padded to the largest part, so that any dtype and any backend will do.
    """
    rows = own.detach().movedim(dim, 0)  # (rows, ...)
    padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in sizes]
    torch.distributed.all_gather([as_bytes(part) for part in parts], as_bytes(padded))
    whole = torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
    # Not a view: scripts write into what a forward returned, and autograd lets nobody write into a Function's views.
    return whole if dim == 0 else whole.movedim(0, dim).clone(memory_format=torch.contiguous_format)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous tensor as a vector of bytes."""
    return tensor.reshape(-1).view(torch.uint8)


class RowsApart:
    """Whether each rank works on rows of its own: since a model was wrapped that takes them (split=False).

    A script may wrap under a condition. Until it does, loaders give whole batches, and nothing is to be gathered.
    """

    now = False


def own_slice(whole: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> torch.Tensor:
    """The rows of a whole tensor that are this rank's, if rank r has sizes[r] of them."""
    rank = own_rank()
    return whole.narrow(dim, sum(sizes[:rank]), sizes[rank])


# How a tensor goes from the ranks to the whole: (dim, sizes) if rank r holds sizes[r] of its rows along dim,
# None if each rank holds a copy, whose gradients add up; its shape if these gradients may be sparse.
Layout = tuple[int, tuple[int, ...]] | torch.Size | None


class FromWhole(torch.autograd.Function):
    """What all ranks hold alike becomes each rank's own: its copy, or its rows.

    The backward pass is IntoWhole, whose backward pass is FromWhole, and so on: gradients of gradients work.
    The first output, a zero called the link, belongs to every result of the ranks' work. So the backward pass
    comes by here on every rank, once, also on a rank without rows; or else the others would wait for it.
    """

    @staticmethod
    def forward(ctx: Any, layouts: Sequence[Layout], *whole: torch.Tensor) -> tuple[torch.Tensor, ...]:
        link = whole[0].new_zeros((), dtype=torch.float32)
        own = (link, *(part_of(tensor, layout) for tensor, layout in zip(whole, layouts, strict=True)))
        ctx.layouts = layouts
        ctx.forms = [(part.shape, part.dtype, part.device) for part in own]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(link)
        ctx.replica_is_done, ctx.early = False, []
        return own

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        if gradients[0] is None and ctx.replica_is_done:
            # Not by way of the link: a reentrant checkpoint, which runs parts of the backward pass beforehand, on
            # ranks with rows only. Its gradients wait for the one pass that comes by on all ranks.
            ctx.early.append(gradients)
            return (None,) * len(gradients)
        each = zip(*ctx.early, gradients, strict=True)
        link_gradient, *sums = (added(found, *form) for found, form in zip(each, ctx.forms, strict=True))
        ctx.early = []
        if torch.is_grad_enabled():  # there will be gradients of gradients
            (link,) = ctx.saved_tensors
            link_gradient = link + link_gradient
        return None, *IntoWhole.apply(ctx.layouts, link_gradient, *sums)


class IntoWhole(torch.autograd.Function):
    """What each rank holds becomes what all ranks hold alike: the sum of copies, or all rows in order."""

    @staticmethod
    def forward(
        ctx: Any, layouts: Sequence[Layout], link: torch.Tensor, *own: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.layouts = layouts
        pairs = list(zip(own, layouts, strict=True))
        sums = iter(sum_over_ranks([tensor for tensor, layout in pairs if layout is None]))
        return tuple(next(sums) if layout is None else from_ranks(tensor, layout) for tensor, layout in pairs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return None, *FromWhole.apply(ctx.layouts, *gradients)


def replica_is_done(link: torch.Tensor) -> None:
    """Tell the FromWhole that a link came from that the replica has run, and what comes next is the backward pass."""
    node: Any = link.grad_fn
    while node is not None and not hasattr(node, "replica_is_done"):  # .to(device) may stand between
        node = node.next_functions[0][0] if node.next_functions else None
    if node is not None:
        node.replica_is_done = True


def added(
    found: Sequence[torch.Tensor | None], shape: torch.Size, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """The sum of gradients; zeros where there are none."""
    given = [gradient for gradient in found if gradient is not None]
    if not given:
        return torch.zeros(shape, dtype=dtype, device=device)
    return sum(given[1:], start=given[0])


def part_of(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """This rank's part of a tensor that all ranks hold."""
    if tensor.is_sparse:
        return tensor.clone()
    if layout is None or isinstance(layout, torch.Size):
        return tensor.view_as(tensor)
    return own_slice(tensor, layout[1], layout[0]).clone()


def from_ranks(own: torch.Tensor, layout: tuple[int, tuple[int, ...]] | torch.Size) -> torch.Tensor:
    """The ranks' rows in order, or the sum of gradients that are sparse if those of all ranks with rows are."""
    if not isinstance(layout, torch.Size):
        return concatenate_ranks(own, layout[1], layout[0])
    told = (own._indices().cpu(), own._values().cpu()) if own.is_sparse else own.cpu() if own.any() else None
    found = [each for each in exchange(told) if each is not None]
    parts = [
        torch.sparse_coo_tensor(each[0], each[1], layout) if isinstance(each, tuple) else each
        for each in found
    ]
    if not all(part.is_sparse for part in parts):
        parts = [part.to_dense() if part.is_sparse else part for part in parts]
    return added(parts, layout, own.dtype, torch.device("cpu")).to(own.device)


def sum_over_ranks(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Each tensor's sum over the ranks, with one all_reduce for all tensors of a kind."""
    sums = [tensor.to_dense() if tensor.is_sparse else tensor for tensor in tensors]
    for places in alike(sums):
        flat = torch.cat([sums[i].reshape(-1) for i in places])
        torch.distributed.all_reduce(torch.view_as_real(flat) if flat.is_complex() else flat)
        parts = flat.split([sums[i].numel() for i in places])
        for i, part in zip(places, parts, strict=True):
            sums[i] = part.view(sums[i].shape)
    return sums


def alike(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """The positions of the tensors, grouped by dtype and device."""
    groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for i, tensor in enumerate(tensors):
        groups.setdefault((tensor.dtype, tensor.device), []).append(i)
    return list(groups.values())


def copy_from_rank(source: int, tensors: Sequence[torch.Tensor]) -> None:
    """Give these tensors the values they have on one rank, with one broadcast for all tensors of a kind."""
    for places in alike(tensors):
        flat = torch.cat([tensors[i].detach().reshape(-1) for i in places])
        torch.distributed.broadcast(as_bytes(flat), source)
        parts = flat.split([tensors[i].numel() for i in places])
        for i, part in zip(places, parts, strict=True):
            if own_rank() != source:
                tensors[i].data.copy_(part.view(tensors[i].shape))


class ScaleGradient(torch.autograd.Function):
    """x in the forward pass; the gradient times a factor in the backward pass."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.factor, None


class ZeroGradients(torch.autograd.Function):
    """The link in the forward pass; in the backward pass a zero gradient for every parameter.

    DataParallel gives unused parameters zeros, not None (weight decay and momentum act on them), and
    DistributedDataParallel's reducer wants to hear of every parameter on every rank.
    """

    @staticmethod
    def forward(ctx: Any, link: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.forms = [(p.shape, p.dtype, p.device) for p in parameters]
        return link.clone()

    @staticmethod
    def backward(ctx: Any, link_gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        zeros = [torch.zeros((), dtype=dtype, device=device) for _, dtype, device in ctx.forms]
        return link_gradient, *(zero.expand(form[0]) for zero, form in zip(zeros, ctx.forms, strict=True))


Kind = TypeVar("Kind", bound=type)


@dataclass(frozen=True)
class Report:
    """What a rank tells the others about its forward pass."""

    outputs: tuple[Any, ...]  # one described output; none without rows, or after an error
    error: ExceptionWrapper | None = None
    text: str = ""
    streams: dict[str, Any] | None = None
    changed_buffers: bool = False
    changed_parameters: bool = False
    drew_on_host: bool = False


def called_data_parallel(kind: Kind) -> Kind:
    """Give a class the name that was printed, saved and compared before."""
    kind.__name__ = "DataParallel"
    return kind


@called_data_parallel
class GraphDDP(DistributedDataParallel):
    """nn.DataParallel over the ranks; gradients are added up inside the autograd graph, as DataParallel does.

    Right for whatever autograd can do: several backward passes, autograd.grad, gradients of gradients, layers
    that come or thaw later. With split=False the inputs are this rank's rows already.
    It is a DistributedDataParallel by name only: for isinstance, .module, and the keys of the state dict.
    """

    in_turn = False  # whether the ranks run the module one after another
    # One a process: a device has one default generator, whichever model draws from it.
    device_stream = DeviceStream()

    def __init__(self, module: torch.nn.Module, dim: int = 0, split: bool = True) -> None:
        torch.nn.Module.__init__(self)
        self.module = module
        self.dim = dim
        self.split = split
        RowsApart.now = RowsApart.now or not split
        self.trained = False
        self.buffers_then: list[int] = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if world_size() > 1:
            return self.forward_on_ranks(inputs, kwargs)
        alone = split_arguments(inputs, kwargs, 0, 1, lambda tensor: (1, tensor.to(self.device)))
        return self.module(*alone.inputs, **alone.kwargs)

    def forward_on_ranks(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run this rank's replica, tell the others how it went, and join the outputs."""
        self.catch_up()
        link, copies, part = self.enter(inputs, kwargs)
        tensors: list[torch.Tensor] = []
        reports = exchange(self.run_replica(part, copies, tensors))
        replica_is_done(link)
        self.follow(reports)
        link = self.tie(link)
        ranks = [rank for rank, report in enumerate(reports) if report.outputs]
        return gather_outputs(
            [reports[rank].outputs[0] for rank in ranks],
            lambda faces: self.join_tensors(dict(zip(ranks, faces, strict=True)), tensors, link),
        )

    def enter(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, dict[Any, Any], Part]:
        """From what all ranks hold to this rank's: the link, copies of parameters, its part of the inputs."""
        world, grad = world_size(), torch.is_grad_enabled()
        parameters = self.parameters_in_graph()
        cut = {id(t): t for t in tensors_in((inputs, kwargs)) if t.requires_grad and grad and self.split}
        sparse = self.sparse_parameters()
        layouts: list[Layout] = [p.shape if p in sparse else None for p in parameters]
        layouts += [(self.dim, rank_sizes(tensor, world, self.dim)) for tensor in cut.values()]
        if layouts:
            link, *own = FromWhole.apply(tuple(layouts), *parameters, *cut.values())
        else:
            link, own = torch.zeros((), device=self.device, requires_grad=grad), []
        copies, chunks = own[: len(parameters)], dict(zip(cut, own[len(parameters) :], strict=True))
        part = split_arguments(inputs, kwargs, own_rank(), world, lambda tensor: self.take(tensor, chunks))
        return link.to(self.device), dict(zip(parameters, copies, strict=True)), part

    def take(self, tensor: torch.Tensor, chunks: dict[int, torch.Tensor]) -> tuple[int, torch.Tensor]:
        """The number of chunks of an input, and this rank's, on its device."""
        world = world_size()
        if not self.split:
            return world, tensor.to(self.device)
        count = len(chunk_sizes(tensor, world, self.dim))
        if id(tensor) in chunks:
            return count, chunks[id(tensor)].to(self.device)
        own = own_slice(tensor, rank_sizes(tensor, world, self.dim), self.dim)
        return count, own.to(self.device, copy=True)

    def has_rows(self, part: Part) -> bool:
        """Whether there is anything to do for this rank's replica."""
        if self.split:
            return own_rank() < part.replicas
        first = next(tensors_in((part.inputs, part.kwargs)), None)
        return own_rank() == 0 or first is None or first.dim() == 0 or first.shape[self.dim] > 0

    def host_streams(self) -> dict[str, Any]:
        """The random streams that all replicas draw from: all but the one of the module's device."""
        own = "cuda" if self.device.type == "cuda" else "torch"
        return {name: state for name, state in random_streams().items() if name != own}

    def run_replica(self, part: Part, copies: dict[Any, Any], tensors: list[torch.Tensor]) -> Report:
        """Call a replica with its part of the inputs. The tensors of its output go to the list."""
        if not self.has_rows(part):
            return Report(())
        replica = replica_of(self.module, self.stand_ins(copies))
        return self.run(lambda: describe_output(replica(*part.inputs, **part.kwargs), tensors))

    def run(self, call: Callable[[], Any]) -> Report:
        """Do a replica's work, which gives its described output."""
        before, versions = random_streams(), self.versions()
        outputs: tuple[Any, ...] = ()
        error = None
        with self.replica_streams(before) as text:
            try:
                outputs = (call(),)
            except Exception:  # it is raised on every rank, in follow
                error = ExceptionWrapper(where=f"in replica {own_rank()} on device {self.device}")
            on_host = changed_streams(self.host_streams(), before)
        drawn = changed_streams(random_streams(), before)
        if self.in_turn:
            drawn = {name: state for name, state in drawn.items() if name not in on_host}
        buffers, parameters = (now != then for now, then in zip(self.versions(), versions, strict=True))
        return Report(
            outputs,
            error,
            text.getvalue(),
            drawn,
            buffers or self.is_training,
            parameters,
            bool(on_host) and not self.in_turn,
        )

    @contextlib.contextmanager
    def replica_streams(self, before: dict[str, Any]) -> Iterator[io.StringIO]:
        """On ranks > 0, draw from the device's own stream, then go on with the script's; keep the print."""
        text = io.StringIO()
        if own_rank() == 0:
            yield text
            return
        with contextlib.redirect_stdout(text), self.device_stream.drawn_from(default_generator(self.device)):
            yield text
        shared = self.host_streams() if self.in_turn else {}
        set_random_streams({name: state for name, state in before.items() if name not in shared})

    def stand_ins(self, copies: dict[Any, Any]) -> dict[torch.Tensor, torch.Tensor]:
        """What a replica computes with: as with DataParallel, only replica 0 can change the module's own.

        Except that parameters are copied in the first training pass only, in which layers may look at the
        data to initialise themselves. To copy them at every step would cost more than it is worth.
        """
        stand_ins = {tensor: copies.get(tensor, tensor) for tensor in self.module.parameters()}
        if own_rank() == 0:
            return {**stand_ins, **{buffer: buffer for buffer in self.module.buffers()}}
        if self.is_training and not self.trained:
            stand_ins = {tensor: copy.clone() for tensor, copy in stand_ins.items()}
        return {**stand_ins, **{buffer: buffer.clone() for buffer in self.module.buffers()}}

    def follow(self, reports: Sequence[Report]) -> None:
        """Let every rank go on as rank 0 does: errors, printed lines, random streams, buffers."""
        if own_rank() == 0:
            for report in reports[1:]:
                sys.stdout.write(report.text)
        elif reports[0].streams:
            set_random_streams(reports[0].streams)
        for report in reports:
            if report.error is not None:
                report.error.reraise()
        if len(reports) > 1 and any(report.drew_on_host for report in reports) and reports[1].outputs:
            raise RuntimeError(
                "The module draws random numbers on the host in its forward pass (random, numpy, or torch on the "
                "CPU). Let the ranks draw one after another: take dp2ddp.templates.in_turn.InTurnDDP."
            )
        if reports[0].changed_buffers:
            copy_from_rank(0, list(self.module.buffers()))
        first_training = self.is_training and not self.trained
        if first_training or any(report.changed_parameters for report in reports):
            copy_from_rank(0, list(self.module.parameters()))
        self.trained = (self.trained or first_training) and not self.in_turn
        may_run_again = self.is_training and torch.is_grad_enabled()
        self.buffers_then = self.versions()[0] if may_run_again else []

    def catch_up(self) -> None:
        """Take over what rank 0's replica changed since its forward: a checkpoint runs layers again in backward."""
        if self.buffers_then and exchange(self.versions()[0] != self.buffers_then)[0]:
            copy_from_rank(0, list(self.module.buffers()))

    def join_tensors(
        self, faces: dict[int, Face], tensors: list[torch.Tensor], link: torch.Tensor
    ) -> torch.Tensor:
        """One tensor from the ranks' tensors, by the rules of torch.nn.parallel.gather."""
        shapes = dict(zip(faces, joinable_shapes(list(faces.values()), self.dim), strict=True))
        sizes = tuple(shapes[rank][self.dim] if rank in shapes else 0 for rank in range(world_size()))
        if own_rank() in faces:
            own = tensors[faces[own_rank()].place].view(shapes[own_rank()])
        else:
            some = next(iter(shapes))
            own = link.new_empty(shapes[some], dtype=faces[some].dtype).narrow(self.dim, 0, 0)
        if not (torch.is_grad_enabled() and any(face.needs_gradient for face in faces.values())):
            return concatenate_ranks(own, sizes, self.dim)
        return IntoWhole.apply(((self.dim, sizes),), link, own)[0]

    def tensor_of(
        self, rank: int, face: Face, tensors: list[torch.Tensor], link: torch.Tensor
    ) -> torch.Tensor:
        """One rank's tensor, on every rank."""
        flat = Face(face.place, torch.Size([face.shape.numel()]), face.dtype, face.needs_gradient)
        return self.join_tensors({rank: flat}, tensors, link).view(face.shape)

    def parameters_in_graph(self) -> list[torch.nn.Parameter]:
        """The parameters whose gradients are added up inside the autograd graph."""
        return self.trainable()

    def sparse_parameters(self) -> set[torch.Tensor]:
        """The weights of embeddings whose gradients hold only the rows that were looked up."""
        layers = [part for part in self.module.modules() if getattr(part, "sparse", False) is True]
        return {p for layer in layers for p in layer.parameters(recurse=False)}

    def tie(self, link: torch.Tensor) -> torch.Tensor:
        """The link that the joined outputs get."""
        return link

    def trainable(self) -> list[torch.nn.Parameter]:
        """The parameters that this forward pass can give a gradient."""
        return [p for p in self.module.parameters() if p.requires_grad and torch.is_grad_enabled()]

    @property
    def is_training(self) -> bool:
        """Whether any part of the module is in training mode."""
        return any(part.training for part in self.module.modules())

    @property
    def device(self) -> torch.device:
        """Where the module is."""
        for tensor in [*self.module.parameters(), *self.module.buffers()]:
            return tensor.device
        return torch.device("cuda" if torch.cuda.is_initialized() else "cpu")

    def versions(self) -> tuple[list[int], list[int]]:
        """Numbers that grow when a buffer, or a parameter, is changed in place."""
        return (
            [buffer._version for buffer in self.module.buffers()],
            [parameter._version for parameter in self.module.parameters()],
        )

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients are whole after every backward pass, as DataParallel's are."""
        yield

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved as a whole it is a DataParallel around the module, as it was before: any script can load that."""
        wrapper = torch.nn.DataParallel(self.module, dim=self.dim)
        own = ("dim", "split", "trained", "buffers_then", "reducing")
        vars(wrapper).update({name: value for name, value in vars(self).items() if name not in own})
        return copyreg._reconstructor, (torch.nn.DataParallel, object, None), vars(wrapper)  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: dict[int, Any]) -> "GraphDDP":
        twin = memo[id(self)] = type(self).__new__(type(self))
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return twin

    def __copy__(self) -> "GraphDDP":
        twin = type(self).__new__(type(self))
        twin.__setstate__(self.__getstate__())
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return vars(self).copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        torch.nn.Module.__setstate__(self, state)


class ReducedCall(torch.nn.Module):
    """What DistributedDataParallel's reducer wraps: a module's parameters, and any call that uses them."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, call: Callable[[], Any]) -> Any:
        return call()


@called_data_parallel
class ExactDDP(GraphDDP):
    """nn.DataParallel over the ranks; gradients are summed by DistributedDataParallel while backward runs.

    The loss on the joined outputs is the whole loss, on every rank. So rank r's gradient g_r is its part of
    DataParallel's gradient, sum(g_r). DistributedDataParallel averages: sum(g_r) / world. Therefore gradients
    are multiplied by world on their way to the parameters. (Not at the outputs, where float16 may overflow.
    Not by a hook that sums without dividing: under accumulation the reducer averages all that .grad holds.)

    Right for one forward and one backward a step; for anything else take GraphDDP.
    """

    def __init__(self, module: torch.nn.Module, dim: int = 0, split: bool = True) -> None:
        super().__init__(module, dim, split)
        self.reducing: tuple[Any, ...] = ()

    def forward_on_ranks(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.trainable():
            return super().forward_on_ranks(inputs, kwargs)
        return self.reducing_ddp()(lambda: super(ExactDDP, self).forward_on_ranks(inputs, kwargs))

    def reducing_ddp(self) -> DistributedDataParallel:
        """torch's DistributedDataParallel of the module, made anew when other parameters are trained."""
        wanted = [(id(p), p.requires_grad, p.device, p.dtype) for p in self.module.parameters()]
        if not self.reducing or self.reducing[0] != wanted:
            if self.reducing:
                drop_reducer(self.reducing[1])
            self.reducing = (wanted, DistributedDataParallel(ReducedCall(self.module), **no_buffers()))
        ddp: DistributedDataParallel = self.reducing[1]
        return ddp

    def enter(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, dict[Any, Any], Part]:
        link, _, part = super().enter(inputs, kwargs)
        return link, {p: ScaleGradient.apply(p, world_size()) for p in self.trainable()}, part

    def parameters_in_graph(self) -> list[torch.nn.Parameter]:
        return []

    def tie(self, link: torch.Tensor) -> torch.Tensor:
        """The link, with zero gradients for all parameters.

        Tied after the module ran, so that backward comes here first and no parameter waits for its zeros.
        """
        return ZeroGradients.apply(link, *self.trainable())

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "reducing": ()}


def no_buffers() -> dict[str, Any]:
    """The option by which DistributedDataParallel leaves buffers alone in forward; renamed in torch 2.13."""
    options = inspect.signature(DistributedDataParallel.__init__).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in options else "broadcast_buffers": False}


def on_rank_zero(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function on rank 0 only; every rank gets its result, or its exception.

    Rank 0 starts when all ranks have come here, and they go on when it is done: whatever is read before or
    after (a file, its existence) is the same on every rank. Results that cannot be sent (open files, figures)
    are a Silence on the other ranks.
    """
    if world_size() == 1:
        return function(*args, **kwargs)
    exchange(None)
    result, error = attempt(lambda: function(*args, **kwargs)) if own_rank() == 0 else (None, None)
    sent_result, sent_error = exchange((sendable(result), sendable(error)) if own_rank() == 0 else None)[0]
    if sent_error is not None:
        raise error or as_exception(sent_error)
    return result if own_rank() == 0 else sent_result


def attempt(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What a function gives, or raises, on one rank, which is alone meanwhile."""
    try:
        with alone():
            return function(), None
    except (Exception, SystemExit) as raised:
        return None, raised


def sendable(value: Any) -> Any:
    """The value if it comes back whole from pickle, a Silence that knows its text if not."""
    if is_sendable(value):
        return value
    if isinstance(value, BaseException) and is_sendable((type(value), value.args)):
        return type(value), value.args
    return Silence(text=f"{type(value).__name__}: {value}")


def is_sendable(value: Any) -> bool:
    """Whether it comes back whole from pickle."""
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:
        return False
    return True


def as_exception(error: Any) -> BaseException:
    """An exception of rank 0 as another rank can raise it: not made anew, since its __init__ may want other things."""
    if isinstance(error, BaseException):
        return error
    if isinstance(error, Silence):
        return RuntimeError(f"on rank 0: {error.text}")
    kind, arguments = error
    raised: BaseException = kind.__new__(kind, *arguments)
    return raised


class Silence:
    """Stands on ranks > 0 for an object that only rank 0 has (a log writer): takes every call, does nothing.

    It has the plain attributes (names, folders, numbers) that rank 0's object had when it was made.
    """

    def __init__(self, **facts: Any) -> None:
        vars(self).update(facts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> "Silence":
        return self

    def __enter__(self) -> "Silence":
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __getitem__(self, key: Any) -> "Silence":
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __le__(self, other: Any) -> bool:  # logging asks every handler: record.levelno >= handler.level
        return False

    def __str__(self) -> str:
        return ""


def save_on_rank_zero(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """torch.save, once. A file gets its name only when it is complete: an interrupted run leaves the old one.

    If f is an open file, it is the rank's own, and every rank writes to it.
    """
    if hasattr(f, "write"):
        torch.save(obj, f, *args, **kwargs)
    else:
        on_rank_zero(save_completely, obj, f, *args, **kwargs)


def save_completely(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """torch.save under another name in the same folder, then moved into place; a link is written through."""
    if os.path.islink(f):
        torch.save(obj, f, *args, **kwargs)
        return
    unfinished = f"{os.fspath(f)}.{os.getpid()}.unfinished"
    try:
        torch.save(obj, unfinished, *args, **kwargs)
        os.replace(unfinished, f)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(unfinished)
        raise


def pack(value: Any) -> tuple[bytes, list[torch.Tensor]]:
    """The pickled value without its plain tensors, and these, which travel by themselves."""
    written = io.BytesIO()
    tensors: list[torch.Tensor] = []
    Packer(written, tensors).dump(value)
    return written.getvalue(), tensors


def send(message: bytes, tensors: list[torch.Tensor]) -> None:
    """A packed value, from this rank to all others."""
    bytes_from_rank(own_rank(), message)
    tensors_from_rank(own_rank(), tensors)


def receive(source: int) -> Any:
    """The value that another rank sends."""
    tensors: list[torch.Tensor] = []
    value = Unpacker(bytes_from_rank(source), tensors).load()
    tensors_from_rank(source, tensors)
    return value


class Packer(pickle.Pickler):
    """Writes the form of a tensor in place of its numbers."""

    def __init__(self, file: io.BytesIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(file, protocol=5)
        self.tensors = tensors
        self.numbers: dict[int, int] = {}

    def persistent_id(self, thing: Any) -> Any:
        plain = type(thing) is torch.Tensor and thing.layout == torch.strided and not thing.requires_grad
        if not plain or thing.is_quantized or thing.device.type not in ("cpu", "cuda"):
            return None
        number = self.numbers.setdefault(id(thing), len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(thing)
        dense = 1 + sum((n - 1) * step for n, step in zip(thing.shape, thing.stride(), strict=True))
        strides = thing.stride() if dense == thing.numel() else None
        return number, tuple(thing.shape), strides, thing.dtype, thing.device.type


class Unpacker(pickle.Unpickler):
    """Makes empty tensors of the forms, on this rank's device; they go to the list."""

    def __init__(self, message: bytes, tensors: list[torch.Tensor]) -> None:
        super().__init__(io.BytesIO(message))
        self.tensors = tensors
        self.made: dict[int, torch.Tensor] = {}

    def persistent_load(self, form: Any) -> torch.Tensor:
        number, shape, strides, dtype, device = form
        if number not in self.made:
            made = torch.empty(shape, dtype=dtype, device=device)
            self.made[number] = made if strides is None else made.as_strided(shape, strides)
            self.tensors.append(self.made[number])
        return self.made[number]


def bytes_from_rank(source: int, message: bytes = b"") -> bytes:
    """One rank's message on every rank: up to FRAME bytes in one round, with their length in front."""
    content = len(message).to_bytes(8, "little") + message
    frame = broadcast(content[:FRAME].ljust(FRAME, b"\0"), source)
    length = 8 + int.from_bytes(frame[:8], "little")
    rest = broadcast(content[FRAME:length].ljust(length - FRAME, b"\0"), source) if length > FRAME else b""
    return (frame + rest)[8:length]


def broadcast(content: bytes, source: int) -> bytes:
    """One rank's bytes, as many as the others bring."""
    place = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    torch.distributed.broadcast(place, source)
    return place.numpy().tobytes()


def tensors_from_rank(source: int, tensors: list[torch.Tensor]) -> None:
    """One rank's numbers into these tensors."""
    copy_from_rank(source, [tensor for tensor in tensors if tensor.numel() > 0])


def spread(make: "Callable[..., DataLoader[Any]]", *args: Any, **kwargs: Any) -> "DataLoader[Any]":
    """The loader that make(*args, **kwargs) gives; its worker w loads on rank w % world, for all ranks.

    DataLoader gives batch b to worker b % num_workers, and each worker draws from random streams of its own. So
    a batch has the crops, flips and noise that it would have in one process. Every rank starts all the workers;
    those that load on another rank stay idle. A loader without workers, of an iterable data set, or of a class
    that iterates in its own way stays as it is: every rank loads all of it.
    """
    loader = make(*args, **kwargs)
    plain = type(loader).__iter__ is DataLoader.__iter__ and getattr(loader, "in_order", True)
    if (
        world_size() == 1
        or loader.num_workers == 0
        or not plain
        or isinstance(loader.dataset, IterableDataset)
    ):
        return loader
    return SpreadLoader(loader)


class SpreadLoader(DataLoader[Any]):
    """A DataLoader with another's settings, some of whose workers load on other ranks."""

    def __init__(self, loader: "DataLoader[Any]") -> None:
        vars(self).update(vars(loader))
        self.whole = loader
        self.worker_init_fn = OwnWorkers(loader.worker_init_fn, own_rank(), world_size())

    def __iter__(self) -> Any:
        return SpreadBatches(super().__iter__(), self) if world_size() > 1 else iter(self.whole)


class OwnWorkers:
    """A worker_init_fn after which the workers of other ranks load nothing."""

    def __init__(self, start: Callable[[int], None] | None, rank: int, world: int) -> None:
        self.start = start
        self.rank = rank
        self.world = world

    def __call__(self, worker: int) -> None:
        if self.start is not None:
            self.start(worker)
        if worker % self.world != self.rank:
            vars(fetch)["_MapDatasetFetcher"] = IdleFetcher


class IdleFetcher:
    """In place of torch/utils/data/_utils/fetch.py's fetcher, on a worker that loads on another rank."""

    def __init__(self, *settings: Any) -> None:
        pass

    def fetch(self, indices: Any) -> None:
        """Nothing; the batch comes from the rank that has it."""


class SpreadBatches:
    """One pass over a spread loader."""

    def __init__(self, batches: Iterator[Any], loader: SpreadLoader) -> None:
        self.batches = batches
        self.loader = loader
        self.number = 0

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> "SpreadBatches":
        return self

    def __next__(self) -> Any:
        batch = error = None
        try:
            batch = next(self.batches)
        except StopIteration:  # on all ranks alike
            raise
        except Exception as raised:
            error = raised
        source = self.number % self.loader.num_workers % world_size()
        self.number += 1
        batch, error = from_rank(source, (batch, error and sendable(error)))
        if error is not None:
            try:
                raise as_exception(error)
            finally:
                del error  # it holds this frame, and torch is 5 s late to end a worker in a cycle
        pinned = self.loader.pin_memory and torch.cuda.is_available() and own_rank() != source
        return pin_memory.pin_memory(batch) if pinned else batch


def from_rank(source: int, value: Any) -> Any:
    """What one rank brings; its tensors travel by themselves."""
    if own_rank() != source:
        return receive(source)
    send(*pack(value))
    return value


# --- end of the copied helpers

parser = argparse.ArgumentParser(description="CIFAR training")
parser.add_argument("--lr", default=0.1, type=float, help="learning rate")
parser.add_argument("--epochs", default=3, type=int)
parser.add_argument("--batch-size", default=32, type=int)
parser.add_argument("--workers", default=2, type=int)
parser.add_argument("--seed", default=0, type=int)
parser.add_argument("--out", default="checkpoint", help="folder for the best checkpoint")
parser.add_argument("--resume", action="store_true", help="start from the best checkpoint")

join_process_group()

args = parser.parse_args()

torch.manual_seed(args.seed)
device = "cuda" if torch.cuda.is_available() else "cpu"
best_acc = 0.0
start_epoch = 0

print("==> Preparing data..")
trainset = train_set()
trainloader = spread(DataLoader, trainset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
testset = test_set()
testloader = spread(DataLoader, testset, batch_size=50, shuffle=False, num_workers=args.workers)

print("==> Building model..")
net = ResNet(num_classes=trainset.classes)
net = net.to(device)
if device == "cuda":
    net = ExactDDP(net)

checkpoint_path = os.path.join(args.out, "best.pth")
if args.resume:
    print("==> Resuming from checkpoint..")
    checkpoint = torch.load(checkpoint_path, map_location=device)
    net.load_state_dict(checkpoint["net"])
    best_acc = checkpoint["acc"]
    start_epoch = checkpoint["epoch"] + 1

criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)


def train(epoch):
    net.train()
    train_loss = 0.0
    correct = 0
    total = 0
    for inputs, targets in trainloader:
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()

        train_loss += loss.item()
        _, predicted = outputs.max(1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()
    print("Epoch %d: train loss %.3f | acc %.2f%% (%d/%d)" % (
        epoch, train_loss / len(trainloader), 100.0 * correct / total, correct, total))


def test(epoch):
    global best_acc
    net.eval()
    test_loss = 0.0
    correct = 0
    total = 0
    with torch.no_grad():
        for inputs, targets in testloader:
            inputs, targets = inputs.to(device), targets.to(device)
            outputs = net(inputs)
            loss = criterion(outputs, targets)

            test_loss += loss.item()
            _, predicted = outputs.max(1)
            total += targets.size(0)
            correct += predicted.eq(targets).sum().item()
    acc = 100.0 * correct / total
    print("Epoch %d: test loss %.3f | acc %.2f%% (%d/%d)" % (
        epoch, test_loss / len(testloader), acc, correct, total))

    # Keep the best
    if acc > best_acc:
        print("Saving..")
        state = {"net": net.state_dict(), "acc": acc, "epoch": epoch}
        if not os.path.isdir(args.out):
            on_rank_zero(os.makedirs, args.out)
        save_on_rank_zero(state, checkpoint_path)
        best_acc = acc


for epoch in range(start_epoch, args.epochs):
    train(epoch)
    test(epoch)
    scheduler.step()
print("Best accuracy: %.2f%%" % best_acc)
