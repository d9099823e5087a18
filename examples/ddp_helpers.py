"""What scripts need that dp2ddp converted (edition ef5dbd1e): yours now, it needs torch alone."""

import atexit
import contextlib
import contextvars
import copy
import copyreg
import ctypes
import functools
import gc
import inspect
import io
import itertools
import math
import operator
import os
import pickle
import random
import signal
import sys
import sysconfig
import tempfile
import textwrap
import threading
import time
import traceback
import uuid
import warnings
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import CodeType, FunctionType, MethodType, ModuleType, TracebackType
from typing import Any, TypeGuard, TypeVar

import torch
import torch.distributed
from torch._utils import ExceptionWrapper
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


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
    if not -tensor.dim() <= dim < tensor.dim():
        tensor.chunk(world, dim)  # raises what torch says of that
    return sizes_of_chunks(tensor.shape[dim], world)


@functools.lru_cache(maxsize=1024)
def sizes_of_chunks(rows: int, world: int) -> tuple[int, ...]:
    """Rows of each chunk, of so many in all."""
    return tuple(len(chunk) for chunk in torch.empty(rows, device="meta").chunk(world))


def rank_sizes(tensor: torch.Tensor, world: int, dim: int) -> tuple[int, ...]:
    """Rows of each rank, zeros for ranks that get none: 5 over 4 is 2, 2, 1, 0."""
    return with_empty_ranks(chunk_sizes(tensor, world, dim), world)


def with_empty_ranks(sizes: tuple[int, ...], world: int) -> tuple[int, ...]:
    """Rows of each rank from those of the chunks, which may be fewer."""
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


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same with something else in the place of each tensor, in tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        made = copy.copy(value)  # of its own kind: a defaultdict cannot be called with items
        made.update((key, map_tensors(item, change)) for key, item in value.items())
        return made
    if not isinstance(value, (tuple, list)):
        return value
    items = [map_tensors(item, change) for item in value]
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


# Events that change files, and which of their arguments are paths (Python's audit events table).
CHANGES = {"open": (0,), "os.mkdir": (0,), "os.remove": (0,), "os.rmdir": (0,), "os.rename": (0, 1), "os.link": (1,),
           "os.symlink": (1,), "os.truncate": (0,), "sqlite3.connect": (0,)}


# Environment variable that turns the warning off, whatever its value.
SILENT = "DDP_SILENT_WRITES"


# Environment variables with folders of caches, which are made to be shared by processes.
CACHES = (
    "XDG_CACHE_HOME",
    "TORCH_HOME",
    "HF_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "MPLCONFIGDIR",
)


def watch_writes(rank: int) -> None:
    """From now on, say on stderr where the script writes, makes, moves or removes a file on this rank.

    Rank 0 does the same, so it happens once a rank; nothing gave it to rank 0 alone. One line for each line of the
    script. Temporary files, caches and devices are left out, and so are child processes (a loader's workers).
    """
    own, reported = os.getpid(), set[str]()
    spared, here = folders_to_spare(), f"{os.getcwd()}{os.sep}"
    kept = here if here.startswith(spared) else "\0"  # a script may be started in a temporary folder

    def see(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in CHANGES or os.getpid() != own or not is_writing(event, arguments):
            return
        for path in (arguments[index] for index in CHANGES[event]):
            if not isinstance(path, (str, bytes, os.PathLike)):
                continue  # a descriptor: the file was opened before
            whole = os.path.abspath(os.fsdecode(path))
            name = f"{whole}{os.sep}"
            if name.startswith(spared) and not name.startswith(kept) or "__pycache__" in whole:
                continue
            if event == "os.mkdir" and os.path.isdir(whole):
                continue  # nothing happens
            place = line_of_script(sys._getframe(1))
            if place:
                sys.audit("ddp.write", whole, place)  # whoever runs this may want to know
            if place and place not in reported and SILENT not in os.environ:
                reported.add(place)
                text = f"{place}: rank {rank} writes {whole}, as rank 0 does: nothing leaves it to rank 0"
                print(f"{text} ({SILENT}=1 hides this)\n", end="", file=sys.__stderr__, flush=True)

    sys.addaudithook(see)
    torch.save = torch.serialization.save = save_with_event(torch.save)


def is_writing(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether an event changes a file: one that is opened by its flags; in memory there is none.

    What is named in an open folder (by the descriptor that comes last) is a step of shutil.rmtree, seen anyway.
    """
    if event == "open":
        return isinstance(arguments[2], int) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    if event == "sqlite3.connect":
        return not any(word in str(arguments[0]) for word in (":memory:", "mode=ro", "mode=memory"))
    return event == "os.truncate" or arguments[-1] == -1


def folders_to_spare() -> tuple[str, ...]:
    """Temporary folders, caches, devices and Python itself."""
    home = os.path.expanduser("~")
    folders = [tempfile.gettempdir(), *filter(None, map(os.environ.get, CACHES)), sys.prefix, sys.base_prefix]
    folders += [
        os.path.join(home, name) for name in (".cache", ".config", ".local", ".triton", ".nv", ".keras")
    ]
    return tuple(f"{os.path.abspath(folder)}{os.sep}" for folder in (*folders, "/dev", "/proc", "/sys"))


def line_of_script(frame: "FrameType | None") -> str:
    """The innermost line that is neither Python's nor a library's; empty where there is none (a library's thread)."""
    paths = sysconfig.get_paths()
    python = ("<frozen", f"{paths['stdlib']}{os.sep}", f"{paths['platstdlib']}{os.sep}")
    while frame is not None:
        file = frame.f_code.co_filename
        library = file.startswith(python) or "site-packages" in file or "dist-packages" in file
        if not library and frame.f_code.co_name != "telling":
            return f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def save_with_event(save: Callable[..., Any]) -> Callable[..., Any]:
    """torch.save, which writes in C++ without an event: libraries call it, too."""

    @functools.wraps(save)
    def telling(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, (str, os.PathLike)):
            sys.audit("open", f, "wb", os.O_WRONLY)
        return save(obj, f, *args, **kwargs)

    return telling


# Environment variable with the process id of a rank. Children inherit it (loader workers, pools,
# subprocesses) and see by it that they are not the rank itself.
RANK_PROCESS = "RANK_PROCESS"


# True while rank 0 does something on its own: whatever runs then must not wait for the other ranks.
ALONE = contextvars.ContextVar("ALONE", default=False)


# How long a rank waits for the others. Rank 0 may evaluate or download alone for longer than torch's half hour;
# a rank that ends is noticed at once (its connections close), so this bounds only ranks that parted ways.
TIMEOUT = timedelta(hours=2)


# Seconds after which the end of a process is forced.
LAST_WAIT = 60


# Of torch's generators: where this rank's own stood when it joined, and where rank 0's did, which it took over.
JOINED: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}


def join_process_group(map_location: Any = None) -> None:
    """Make this process one rank of the run that torchrun started; without torchrun, do nothing.

    Afterwards every rank has the random streams of rank 0, so that all of them shuffle, augment and
    initialise alike, and only rank 0 is heard: the other ranks' stdout and stderr go nowhere
    (uncaught exceptions do come through, and a word where a rank writes what rank 0 writes). Call it once, as early
    as possible. map_location (a function, as torch.load takes it) is for every torch.load that is not given one.
    """
    if RANK_PROCESS in os.environ or "RANK" not in os.environ:
        return
    backend = choose_backend()
    store, rank, world = next(rendezvous("env://", timeout=TIMEOUT))
    if "TORCHELASTIC_RUN_ID" in os.environ:
        store = torch.distributed.distributed_c10d.PrefixStore(name_start(store, rank, world), store)
    torch.distributed.init_process_group(backend, timeout=TIMEOUT, store=store, rank=rank, world_size=world)
    os.environ[RANK_PROCESS] = str(os.getpid())
    atexit.register(leave_process_group)
    own = random_streams()
    shared = exchange(own)[0]
    set_random_streams(shared)
    JOINED.update({name: (own[name], shared[name]) for name in ("torch", "cuda") if name in own})
    if own_rank() > 0:
        mute_output()
        watch_writes(own_rank())
    sys.excepthook = report_exception
    if map_location is not None:
        torch.serialization.register_package(0, lambda storage: None, map_location)


def name_start(store: Any, rank: int, world: int) -> str:
    """A name for this start of the ranks, which no start before it had.

    torchrun --max-restarts starts them anew with the store of the first start, in which the addresses of ranks that
    are gone still stand. Rank 0 names the start, and answers whoever asks, until each rank has said that it knows.
    """
    name = uuid.uuid4().hex
    if rank > 0:
        store.set(f"asks/{rank}", name)
        name_of_start: str = store.get(f"answers/{name}").decode()
        store.set(f"{name_of_start}/knows/{rank}", "")
        return name_of_start
    last, missing = time.monotonic() + TIMEOUT.total_seconds(), list(range(1, world))
    while missing := [other for other in missing if not store.check([f"{name}/knows/{other}"])]:
        for other in missing:
            if store.check([f"asks/{other}"]):  # a rank that is gone may have asked: the new one asks again
                store.set(f"answers/{store.get(f'asks/{other}').decode()}", name)
        if time.monotonic() > last:
            raise TimeoutError(f"ranks {missing} have not joined")
        time.sleep(0.01)
    return name


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


def all_ranks_are_here() -> bool:
    """Whether the other ranks do the same now: they are not there in threads, and while rank 0 is alone."""
    return world_size() > 1 and threading.current_thread() is threading.main_thread()


def world_size() -> int:
    """How many ranks there are to talk to: 1 without torchrun, in child processes, and on rank 0 alone."""
    return torch.distributed.get_world_size() if is_rank_process() and not ALONE.get() else 1


def own_rank() -> int:
    """The number of this rank, 0 if it is the only one."""
    return torch.distributed.get_rank() if world_size() > 1 else 0


def exchange(value: Any) -> list[Any]:
    """What every rank brought, in rank order; no rank goes on before all of them came."""
    if world_size() == 1:
        return [value]
    messages = [b""] * world_size()
    torch.distributed.all_gather_object(messages, pickle_or_explain(value))
    values = [pickle.loads(message) for message in messages]
    for rank, received in enumerate(values):
        if isinstance(received, pickle.PicklingError):
            raise TypeError(f"rank {rank} cannot send this to the other ranks: {received}")
    return values


def pickle_or_explain(value: Any) -> bytes:
    """The pickled value, or the pickled reason: a rank that raised here would leave the others waiting."""
    try:
        return pickle.dumps(value)
    except Exception as error:
        return pickle.dumps(pickle.PicklingError(str(error)))


def random_streams(names: "Container[str] | None" = None) -> dict[str, Any]:
    """The states of the streams that a script draws from: Python's, numpy's, torch's, the GPU's; or some of them."""
    streams: dict[str, Any] = {}
    if names is None or "random" in names:
        streams["random"] = random.getstate()
    if names is None or "torch" in names:
        streams["torch"] = torch.get_rng_state()
    if torch.cuda.is_initialized() and (names is None or "cuda" in names):
        streams["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in sys.modules and (names is None or "numpy" in names):
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


def mute_output() -> None:
    """Send what this process prints nowhere, by sys.__stdout__ too, except the traceback of what ends it."""
    nowhere = open(os.devnull, "w", encoding="utf-8", errors="ignore")  # noqa: SIM115
    vars(sys).update(stdout=nowhere, stderr=nowhere, __stdout__=nowhere)


def report_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """sys.excepthook of a rank: who it was, and the script's own lines; with FULL_TRACEBACK=1 all of them."""
    rank = torch.distributed.get_rank() if has_process_group() else os.environ.get("RANK", "?")
    summary = traceback.TracebackException(kind, error, trace)
    home = os.path.dirname(__file__) + os.sep if __name__.endswith(".templates.process") else __file__
    helpers = () if __name__ == "__main__" else (home,)  # in a script of one file they cannot be told apart
    torchs = os.path.dirname(torch.__file__) + os.sep
    own = [frame for frame in summary.stack if not frame.filename.startswith((torchs, *helpers))]
    fault = bool(summary.stack) and summary.stack[-1].filename.startswith(
        helpers
    )  # of these helpers: then all frames matter
    if own and not fault and not os.environ.get("FULL_TRACEBACK"):
        summary.stack = traceback.StackSummary.from_list(own)
    text = "".join(summary.format())
    place = sys.stderr if rank == 0 else sys.__stderr__  # mute_output leaves that one
    print(textwrap.indent(text, f"[rank{rank}]: ", lambda line: True), end="", file=place)


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


def from_all_ranks(own: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> torch.Tensor:
    """torch.cat of what the ranks bring; all of them have to come here."""
    if world_size() == 1:
        raise RuntimeError(
            "These rows lie on several ranks, and only one rank asks for all of them. Ask where all ranks come by."
        )
    if RowsMade.in_replica:
        raise RuntimeError(
            "The wrapped module's forward asks for rows that other ranks have: of a tensor that is no argument of it, "
            "but in an object, say, or a global name. Give it as an argument, or let rank 0 load the batches: "
            "dp2ddp convert --data share."
        )
    if threading.get_ident() != RowsMade.thread and is_thread_beside():
        raise RuntimeError(
            "A thread asks for rows of the other ranks, whose threads go at their own pace. Hand the thread "
            "x.detach().cpu().numpy(), which is the whole."
        )
    return concatenate_ranks(own, sizes, dim)


class RowsMade:
    """The thread in which the script runs the wrapped model, and takes its batches: there the ranks go side by side."""

    thread = threading.get_ident()
    in_replica = False


@contextlib.contextmanager
def inside_replica() -> Iterator[None]:
    """The time in which a rank runs its replica."""
    before, RowsMade.in_replica = RowsMade.in_replica, True
    try:
        yield
    finally:
        RowsMade.in_replica = before


def is_thread_beside() -> bool:
    """Whether this is neither Python's first thread nor one of autograd's."""
    thread = threading.current_thread()
    return thread is not threading.main_thread() and not isinstance(thread, threading._DummyThread)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous tensor as a vector of bytes."""
    return tensor.reshape(-1).view(torch.uint8)


def take_apart(value: Any, leaves: list[Any]) -> Any:
    """The form of a value, with the position of each leaf in its place; the leaves go to the list."""
    if isinstance(value, dict):
        return type(value), [(key, take_apart(item, leaves)) for key, item in value.items()]
    if is_nested(value):
        return type(value), [take_apart(item, leaves) for item in value]
    leaves.append(value)
    return len(leaves) - 1


def is_nested(value: Any) -> bool:
    """Whether this is a list or tuple that holds the parts of a batch, and not one plain thing a row."""
    if not isinstance(value, (list, tuple)):
        return False
    parts = (torch.Tensor, tuple, list, dict)
    return hasattr(value, "_fields") or any(isinstance(item, parts) for item in value)


def put_together(form: Any, leaves: Sequence[Any]) -> Any:
    """The value with this form and these leaves."""
    if isinstance(form, int):
        return leaves[form]
    kind, parts = form
    if issubclass(kind, dict):
        return kind((key, put_together(part, leaves)) for key, part in parts)
    items = [put_together(part, leaves) for part in parts]
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def join_leaf(leaves: Sequence[Any]) -> Any:
    """One leaf of the whole batch, from every rank's own: lists and arrays in rank order, anything else as it is."""
    own = leaves[0]
    if isinstance(own, (list, tuple)):
        return type(own)(item for items in leaves for item in items)
    if hasattr(own, "shape") and own.shape:
        parts = [torch.as_tensor(each) for each in leaves]
        return torch.cat([part for part in parts if part.shape[0]] or parts).numpy()
    if any(each != own for each in leaves):
        raise ValueError(f"{leaves} differ from rank to rank, and there is no telling how to join them.")
    return own


def own_slice(whole: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> torch.Tensor:
    """The rows of a whole tensor that are this rank's, if rank r has sizes[r] of them."""
    rank = own_rank()
    return whole.narrow(dim, sum(sizes[:rank]), sizes[rank])


# Bytes up to which a tensor travels with other news: no exchange more, and float32 to the last bit.
SMALL_WHOLE = 64 * 1024


class LoadedRows:
    """One tensor of a batch: this rank's rows of it, and all of them once they are known. Nobody changes either."""

    def __init__(self, own: torch.Tensor, sizes: Sequence[int], whole: "torch.Tensor | None" = None) -> None:
        self.own, self.sizes, self.whole = own, tuple(sizes), whole
        self.travels = whole is None and not is_large(own, sizes, 0)

    @property
    def form(self) -> int:
        """A number for what all ranks' rows must have alike."""
        return zlib.crc32(repr((self.own.dtype, self.own.shape[1:])).encode())

    def make_whole(self) -> torch.Tensor:
        """All rows; all ranks have to come here, if they are not known yet."""
        if self.whole is None:
            self.whole = from_all_ranks(self.own, self.sizes)
        return self.whole


@dataclass(frozen=True)
class LoadedOrigin:
    """Where rows come from: what was loaded, and what was done to it since, which can be done to the whole, too."""

    loaded: LoadedRows
    done: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = ()

    def then(self, step: Callable[[torch.Tensor], torch.Tensor]) -> "LoadedOrigin":
        """The origin of what one more step makes."""
        return LoadedOrigin(self.loaded, (*self.done, step))

    def make_whole(self) -> torch.Tensor:
        """The whole of these rows."""
        return self.behind(LoadedOrigin(self.loaded), self.loaded.make_whole())

    def behind(self, earlier: "LoadedOrigin", whole: torch.Tensor) -> torch.Tensor:
        """The same from an earlier whole on."""
        for step in self.done[len(earlier.done) :]:
            whole = step(whole)
        return whole

    @property
    def has_come(self) -> bool:
        """Whether the whole is here, and so small that its rows need not be looked at alone."""
        return self.loaded.travels and self.loaded.whole is not None


def is_large(own: torch.Tensor, sizes: Sequence[int], dim: int) -> bool:
    """Whether the whole is larger than what travels along: every rank has the same answer."""
    return bytes_of_whole(own, sizes, dim) > SMALL_WHOLE


def bytes_of_whole(own: torch.Tensor, sizes: Sequence[int], dim: int) -> int:
    """The size of the whole of which these are a rank's rows, which may be none."""
    return own.element_size() * math.prod(own.shape[:dim]) * math.prod(own.shape[dim + 1 :]) * sum(sizes)


# The tensors of the last batches that no forward pass has seen yet; all ranks number them alike.
WAITING: "weakref.WeakValueDictionary[int, LoadedRows]" = weakref.WeakValueDictionary()


NUMBERS = itertools.count()


# How many tensors wait at most: of a script that never runs its model on them, the last ones.
MOST_WAITING = 64


def await_forward(loaded: LoadedRows) -> None:
    """Let the next forward pass tell all ranks of it."""
    number = next(NUMBERS)
    WAITING[number] = loaded
    for old in [waiting for waiting in WAITING if waiting <= number - MOST_WAITING]:
        WAITING.pop(old, None)


def waiting_beside(arguments: Any, with_rows: bool) -> list[torch.Tensor]:
    """What a message says of the tensors that wait: a table of (number, form, does it travel), and rows that travel.

    Not those of the forward pass's own arguments: the script has done with them, mostly. Of them it is only asked
    whether they have the same form on all ranks, as the samples of one batch must.
    """
    origins = [getattr(tensor, "origin", None) for tensor in tensors_in(arguments)]
    given = {id(origin.loaded) for origin in origins if origin is not None}
    table, rows, left = [], [], SMALL_WHOLE
    for number, loaded in sorted(WAITING.items()):
        size = bytes_of_whole(loaded.own, loaded.sizes, 0)
        goes = with_rows and loaded.travels and size <= left and id(loaded) not in given
        table.append((number, loaded.form, goes))
        rows += [loaded.own] if goes else []
        left -= size if goes else 0
    return [torch.tensor(table, dtype=torch.int64), *rows] if table else []


def take_in(messages: "Sequence[Sequence[torch.Tensor]]") -> None:
    """Read what all ranks' messages say of the tensors that wait."""
    arrived: list[dict[int, tuple[int, torch.Tensor | None]]] = []
    for table, *tensors in (message for message in messages if message):
        parts = iter(tensors)
        arrived.append(
            {number: (form, next(parts) if goes else None) for number, form, goes in table.tolist()}
        )
    if len(arrived) < len(messages):
        return
    for number in [common for common in arrived[0] if all(common in each for each in arrived)]:
        loaded = WAITING.pop(number, None)
        if len({each[number][0] for each in arrived}) > 1:
            raise ValueError(
                "The ranks' samples of one batch have different shapes or types, and cannot be stacked to a batch."
            )
        own = [rows for each in arrived for rows in [each[number][1]] if rows is not None]
        if loaded is not None and loaded.whole is None and len(own) == len(arrived):
            loaded.whole = torch.cat(own)


USUAL = frozenset(vars(torch.nn.Module()))


NO_METHODS = frozenset(map(type, vars(torch.nn.Module()).values())) | {int, float, str, tuple, torch.Tensor}


Function = TypeVar("Function", bound=Callable[..., Any])


def uncompiled(function: Function) -> Function:
    """A function that torch.compile leaves out of graphs, with all that it calls: no graph can wait for other ranks.

    What is compiled itself stays so inside. torch.compiler.disable would import the compiler at once, a second more.
    """
    leave_out: Any = getattr(torch, "_disable_dynamo", None)
    if leave_out is None:  # before torch 2.1
        from torch import _dynamo

        leave_out = _dynamo.disable
    left_out: Function = leave_out(function)
    return left_out


def is_compiled(part: torch.nn.Module) -> bool:
    """Whether this is what torch.compile makes of a module: another module, around it."""
    return "dynamo_ctx" in vars(part) and "_orig_mod" in part._modules


def compiled_replica(part: torch.nn.Module, replica: torch.nn.Module) -> torch.nn.Module:
    """What torch.compile made of a module, around a replica of it: the same compiler, the same options, its graphs."""
    twin: Any = type(part).__new__(type(part))
    own = {"_modules": {"_orig_mod": replica}, "_torchdynamo_orig_callable": replica.forward}
    twin.__setstate__({**part.__getstate__(), **own})
    return twin


def bind_to_replicas(part: torch.nn.Module, replicas: Mapping[int, torch.nn.Module]) -> None:
    """Let a replica call its own methods where the module has methods, or compiled ones, as attributes.

    `module.compile()` and `self.forward = torch.compile(self.forward)` leave such: bound to the module itself, they
    would compute with its own parameters, past all that adds up gradients.
    """
    if NO_METHODS.issuperset(map(type, vars(part).values())):
        return
    for name in vars(part).keys() - USUAL:
        value = vars(part)[name]
        if type(value) in NO_METHODS:
            continue
        compiled = "_torchdynamo_orig_callable" in getattr(value, "__dict__", {})
        method = inspect.unwrap(value) if compiled else value
        if isinstance(method, MethodType) and isinstance(method.__self__, torch.nn.Module):
            replica = replicas.get(id(method.__self__))
            if replica is not None:
                own = MethodType(method.__func__, replica)
                vars(replicas[id(part)])[name] = compiled_alike(value, own) if compiled else own


def compiled_alike(compiled: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function, compiled as another one was; as it is where torch does not tell how."""
    cells = dict(zip(compiled.__code__.co_freevars, compiled.__closure__ or (), strict=True))
    context: Any = cells["self"].cell_contents if "self" in cells else None
    made: Callable[..., Any] = context(function) if hasattr(context, "callback") else function
    return made


def compiler_with(options: Mapping[str, Any]) -> Callable[[torch.nn.Module], torch.nn.Module]:
    """What torch.compile with these options does to a module: to all replicas alike, so that they share graphs."""
    compiled = torch.compile(torch.nn.Identity(), **options)
    context: Any = getattr(compiled, "dynamo_ctx", None)
    return context or (lambda module: module)


class RowsOnRanks(torch.Tensor):
    """A whole tensor, parted among the ranks along one dimension: rank r holds `sizes[r]` of its rows."""

    held: torch.Tensor  # this rank's rows, times what the family says
    sizes: tuple[int, ...]
    part_dim: int  # the dimension along which the rows lie
    kept: "torch.Tensor | None"  # the whole, once something has asked for it
    kept_at: int  # the changes that there were then
    family: "RowsFamily"
    origin: "LoadedOrigin | None"  # of rows of a batch

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def of(
        own: torch.Tensor,
        sizes: Sequence[int],
        dim: int = 0,
        family: "RowsFamily | None" = None,
        shape: "Sequence[int] | None" = None,
        strides: "Sequence[int] | None" = None,
    ) -> "RowsOnRanks":
        """The whole tensor of which `own` are this rank's rows; outside of autograd."""
        if shape is None or strides is None:
            own = (
                own.contiguous()
            )  # what torch does next may depend on strides: they are the same on all ranks
            shape = [*own.shape]
            shape[dim] = sum(sizes)
            strides = contiguous_strides(shape)
        rows: RowsOnRanks = torch.Tensor._make_wrapper_subclass(
            RowsOnRanks,
            shape,
            strides=strides,
            dtype=own.dtype,
            layout=own.layout,
            device=own.device,
            requires_grad=False,
        )
        rows.held, rows.sizes, rows.part_dim = own, tuple(sizes), dim
        rows.kept, rows.kept_at, rows.origin = None, -1, None
        rows.family = RowsFamily() if family is None else family
        rows.family.add(rows)
        return rows

    @property
    def own(self) -> torch.Tensor:
        """This rank's rows."""
        if self.family.times != 1:
            have_own_memory(self.family)
        return self.held

    @classmethod
    @uncompiled
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: "dict[str, Any] | None" = None
    ) -> Any:
        return run_on_rows(func, args, kwargs or {})

    def __setitem__(self, key: Any, value: Any) -> None:
        if not keeps_rows(key, self.part_dim, self.dim()):
            become_whole(self)
        else:
            about_to_change(self)
        super().__setitem__(key, value)

    def tolist(self) -> Any:
        return plain(self).tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        return as_array(self, lambda whole: whole.numpy(*args, **kwargs))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return as_array(self, lambda whole: whole.__array__(*args, **kwargs))

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        return own_whole(self).__dlpack__(*args, **kwargs)

    def __repr__(self, **kwargs: Any) -> str:  # type: ignore[override]
        return repr(plain(self))

    def __format__(self, form: str) -> str:
        return format(plain(self), form)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return plain(self).detach().requires_grad_(self.requires_grad).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: "dict[int, Any]") -> torch.Tensor:
        twin: torch.Tensor = plain(self).__deepcopy__(memo)
        return twin

    def data_ptr(self) -> int:
        return own_whole(self).data_ptr()

    def untyped_storage(self) -> Any:
        return own_whole(self).untyped_storage()


class RowsFamily:
    """RowsOnRanks that share their memory: what changes one of them in place changes all."""

    def __init__(self) -> None:
        self.lent = False  # the memory is another's, who may need it as it is: the wrapped model's
        self.times = 1.0  # the memory holds the numbers times this: see GradientFactor
        self.changes = 0
        self.base: LoadedOrigin | None = None  # of the memory, of which the members are views
        self.members: list[weakref.ref[RowsOnRanks]] = []

    def add(self, rows: RowsOnRanks) -> None:
        self.members = [*(member for member in self.members if member() is not None), weakref.ref(rows)]

    def others(self, rows: RowsOnRanks) -> list[RowsOnRanks]:
        """The living members but for one."""
        living = (member() for member in self.members)
        return [member for member in living if member is not None and member is not rows]


def contiguous_strides(shape: Sequence[int]) -> list[int]:
    """The strides of a contiguous tensor."""
    strides = [1] * len(shape)
    for dim in range(len(shape) - 1, 0, -1):
        strides[dim - 1] = strides[dim] * max(shape[dim], 1)
    return strides


def join_parts(own: torch.Tensor, sizes: Sequence[int], dim: int) -> torch.Tensor:
    """All ranks' rows as one tensor: whole on each rank if it is small, parted as they are if it is large."""
    if dim != 0 or own.layout != torch.strided or not is_large(own, sizes, dim):
        return concatenate_ranks(own, sizes, dim)
    RowsMade.thread = threading.get_ident()
    rows = RowsOnRanks.of(own.detach(), sizes, dim)
    rows.family.lent = True
    return rows


def rows_of_loaded(loaded: LoadedRows) -> RowsOnRanks:
    """A tensor of a batch, as the script sees it; its memory stays as it is."""
    rows = RowsOnRanks.of(loaded.own, loaded.sizes)
    rows.origin = rows.family.base = LoadedOrigin(loaded)
    rows.family.lent = True
    return rows


def own_numbers(tensor: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> torch.Tensor:
    """This rank's rows of a whole tensor, below autograd: a view."""
    if is_parted(tensor) and (tensor.sizes, tensor.part_dim) == (tuple(sizes), dim):
        return tensor.own
    return own_slice(plain_numbers(tensor), sizes, dim)


def own_times(gradient: torch.Tensor, sizes: Sequence[int], dim: int, factor: float) -> torch.Tensor:
    """This rank's rows of a whole gradient times a factor, below autograd; where they are there already, their memory.

    That is not to be changed: the gradient has it, too.
    """
    layout = tuple(sizes), dim, factor
    if is_parted(gradient) and (gradient.sizes, gradient.part_dim, gradient.family.times) == layout:
        gradient.family.lent = True
        return gradient.held.data
    return own_numbers(gradient, sizes, dim) * factor


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The whole as a plain tensor of this rank; autograd goes on through it."""
    return AsPlain.apply(tensor) if isinstance(tensor, RowsOnRanks) else tensor


class AsPlain(torch.autograd.Function):
    """RowsOnRanks -> the same numbers, all of them on each rank; the gradient is the same on all ranks, too."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return plain_numbers(tensor).clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def is_parted(value: Any) -> TypeGuard[RowsOnRanks]:
    """Whether this tensor's rows lie on several ranks."""
    return isinstance(value, RowsOnRanks) and value.held is not value.kept


def plain_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """The whole, below autograd. It is kept, and is not to be changed."""
    if not isinstance(tensor, RowsOnRanks):
        return tensor
    if not is_parted(tensor):
        return tensor.own
    if tensor.kept is None or tensor.kept_at != tensor.family.changes:
        tensor.kept, tensor.kept_at = join_own(tensor), tensor.family.changes
    return tensor.kept


def join_own(rows: RowsOnRanks) -> torch.Tensor:
    """All ranks' rows, in the order of memory that the whole has."""
    if rows.origin is not None and not rows.family.changes:
        return rows.origin.make_whole()
    if rows.held.is_meta:  # torch 2.6 asks so for the shape of a sum with zeros that take no memory
        return torch.empty_strided(rows.shape, rows.stride(), dtype=rows.dtype, device="meta")
    whole = from_all_ranks(rows.own, rows.sizes, rows.part_dim)
    if whole.stride() == rows.stride():
        return whole
    placed = torch.empty_strided(rows.shape, rows.stride(), dtype=whole.dtype, device=whole.device)
    return placed.copy_(whole)


CROSSES = (
    "A large output of the wrapped model, or a view of it, is changed in place, where the change would not reach all "
    "that shares its memory or crosses the ranks' rows. Change a copy: tensor.clone()."
)


def become_whole(rows: RowsOnRanks) -> None:
    """Hold the whole from now on: it is going to be changed in a way that is not row by row."""
    if not is_parted(rows):
        return
    family, known = rows.family, known_members(rows)
    if known is not None and family.base is not None:
        memory = family.base.make_whole().clone()
        for tensor, origin in known:
            tensor.held = tensor.kept = origin.behind(family.base, memory)
            tensor.origin = None
    elif family.others(rows):
        raise RuntimeError(CROSSES)
    else:
        rows.held = rows.kept = plain_numbers(rows).clone()
        rows.origin = None
    family.lent = False


def known_members(rows: RowsOnRanks) -> "list[tuple[RowsOnRanks, LoadedOrigin]] | None":
    """All that share the memory, with their origins; None if not all of them can be made of the whole anew."""
    known = [
        (member, member.origin) for member in (rows, *rows.family.others(rows)) if member.origin is not None
    ]
    is_all = len(known) == 1 + len(rows.family.others(rows))
    return known if is_all and rows.family.base is not None and not rows.family.changes else None


def own_whole(rows: RowsOnRanks) -> torch.Tensor:
    """The whole, in memory that is this tensor's from now on: what is written there past torch is written into it."""
    become_whole(rows)
    return rows.own.detach()


def as_array(rows: RowsOnRanks, convert: Callable[[torch.Tensor], Any]) -> Any:
    """numpy's view of the whole; it is read-only where writing into it would not reach all that shares the memory."""
    if rows.requires_grad or not rows.family.others(rows) or known_members(rows) is not None:
        return convert(plain(rows) if rows.requires_grad else own_whole(rows))
    array = convert(plain(rows))
    array.flags.writeable = False
    return array


def keeps_rows(key: Any, dim: int, dims: int) -> bool:
    """Whether an index takes each row as a whole: only plain slices and numbers, and all of the rows' dimension."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(
        not isinstance(key, (int, slice)) and key is not Ellipsis or isinstance(key, bool) for key in keys
    ):
        return False
    if any(key is Ellipsis for key in keys):
        place = next(i for i, key in enumerate(keys) if key is Ellipsis)
        keys[place : place + 1] = [slice(None)] * (dims - len(keys) + 1)
    return len(keys) <= dim or keys[dim] == slice(None)


def run_on_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of torch, called with RowsOnRanks among its arguments."""
    parted = [rows for value in (*args, *kwargs.values()) for rows in rows_in(value) if is_parted(rows)]
    if all(map(has_come, parted)):
        for rows in parted:
            become_whole(rows)
        return run_on_whole(func, args, kwargs)
    way = WAYS.get(func.name().removeprefix("aten::"))
    if way is None and is_pointwise(func):
        way = map_elements
    if way is None and torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    ):
        return func.decompose(*args, **kwargs)  # made of simpler functions, which come by here in turn
    result = NotImplemented if way is None else way(func, args, kwargs)
    return run_on_whole(func, args, kwargs) if result is NotImplemented else result


def has_come(rows: RowsOnRanks) -> bool:
    """Whether the whole is here already, and so small that its rows need not be looked at alone."""
    return rows.origin is not None and rows.origin.has_come and known_members(rows) is not None


def run_on_whole(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The function as it was written, on all rows; what it changes holds all rows from then on."""
    given = bound(func, args, kwargs)
    changed = [rows for argument, value in given if writes(argument) for rows in rows_in(value)]
    for rows in changed:
        become_whole(rows)
        about_to_change(rows)
    views_of = [value for argument, value in given if argument.alias_info is not None and is_parted(value)]
    result = func(*map_tensors(args, plain_numbers), **map_tensors(kwargs, plain_numbers))
    if views_of:  # a view of the whole, by which nobody can write into the rows of the other ranks
        views = [
            whole_view(tensor.clone(), views_of[0])
            for tensor in (result if isinstance(result, list) else [result])
        ]
        return views if isinstance(result, list) else views[0]
    return changed[0] if changed and gives_what_it_changed(func) else result


def gives_what_it_changed(func: Any) -> bool:
    """Whether a function returns the argument that it changes (x.add_), and not something new beside it."""
    given = func._schema.returns
    return len(given) == 1 and given[0].alias_info is not None and bool(given[0].alias_info.is_write)


def whole_view(tensor: torch.Tensor, rows: RowsOnRanks) -> torch.Tensor:
    """A whole that stands for a view of rows: neither may be changed while both are there."""
    view = RowsOnRanks.of(
        tensor, (tensor.shape[0] if tensor.dim() else 1,), 0, rows.family, tensor.shape, tensor.stride()
    )
    view.kept = tensor
    return view


def bound(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The arguments of a call beside what the function's schema says of them."""
    schema = func._schema.arguments
    return [
        *zip(schema, args, strict=False),
        *((argument, kwargs[argument.name]) for argument in schema if argument.name in kwargs),
    ]


def named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names, with what they are by default."""
    values = {
        argument.name: argument.default_value
        for argument in func._schema.arguments
        if argument.has_default_value()
    }
    return values | {argument.name: value for argument, value in bound(func, args, kwargs)}


def writes(argument: Any) -> bool:
    """Whether a function changes this argument of its schema."""
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def rows_in(value: Any) -> list[RowsOnRanks]:
    """The RowsOnRanks in an argument."""
    return [
        item
        for item in (value if isinstance(value, (list, tuple)) else [value])
        if isinstance(item, RowsOnRanks)
    ]


def about_to_change(rows: RowsOnRanks) -> None:
    """Note a change in place; it must reach all that shares the memory."""
    if any(is_parted(other) != is_parted(rows) for other in rows.family.others(rows)):
        raise RuntimeError(CROSSES)
    have_own_memory(rows.family)
    rows.family.changes += 1


def have_own_memory(family: RowsFamily) -> None:
    """Go on with a copy of memory that is lent, or holds other numbers: all who share it, on the same one."""
    if not family.lent and family.times == 1:
        return
    members = [member for member in (each() for each in family.members) if member is not None]
    spans = [(member.held.storage_offset(), span_of(member.held)) for member in members]
    first, last = min(start for start, _ in spans), max(start + size for start, size in spans)
    memory = members[0].held.as_strided([last - first], [1], first)
    copied = memory.clone() if family.times == 1 else memory / family.times
    for member in members:
        member.held = copied.as_strided(
            member.held.shape, member.held.stride(), member.held.storage_offset() - first
        )
    family.lent, family.times = False, 1.0


def span_of(tensor: torch.Tensor) -> int:
    """How many elements of memory a tensor reaches over."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * step for size, step in steps) if tensor.numel() else 0


@functools.cache
def is_pointwise(func: Any) -> bool:
    """Whether torch says that a function works element by element; of one that works in place, if its twin does."""
    if {torch.Tag.data_dependent_output, torch.Tag.nondeterministic_seeded} & set(func.tags):
        return False  # equal, which answers for all; rrelu, which may draw
    if torch.Tag.pointwise in func.tags:
        return True
    name, overload = func._schema.name, func._schema.overload_name or "default"
    packet = getattr(torch.ops.aten, name.removeprefix("aten::")[:-1], None) if name.endswith("_") else None
    twin = getattr(packet, overload, None)
    return twin is not None and torch.Tag.pointwise in twin.tags


def map_elements(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Functions of each element: of rows that lie alike, beside what has one row, or all of them, or none."""
    given = [*args, *kwargs.values()]
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    layouts = {(tensor.sizes, tensor.dim() - tensor.part_dim) for tensor in tensors if is_parted(tensor)}
    if len(layouts) != 1 or any(isinstance(value, (list, tuple)) and rows_in(value) for value in given):
        return NotImplemented
    sizes, place = layouts.pop()  # the rows' dimension, counted from the last
    changed = [value for argument, value in bound(func, args, kwargs) if writes(argument)]
    if any(not is_parted(tensor) for tensor in changed):
        return NotImplemented
    own = [own_beside(value, sizes, place) for value in given]
    if any(part is None is not value for part, value in zip(own, given, strict=True)):
        return NotImplemented  # one row in all, beside more
    for rows in changed:
        about_to_change(rows)
    if changed:
        own = [own_beside(value, sizes, place) for value in given]  # in memory that may be changed
    result = func(*own[: len(args)], **dict(zip(kwargs, own[len(args) :], strict=True)))
    if changed:
        return changed[0]
    first = max(filter(is_parted, tensors), key=lambda tensor: tensor.dim())
    result = parted_like(result, first, max(tensor.dim() for tensor in tensors) - place)
    return as_the_whole(result, func, args, kwargs) if len(tensors) == 1 and tensors[0] is args[0] else result


def parted_like(result: Any, rows: RowsOnRanks, dim: int) -> Any:
    """What was computed on the own rows, as RowsOnRanks; also in a tuple. What is no tensor stays."""
    if isinstance(result, torch.Tensor):
        return in_memory_as(result, rows, dim)
    if not isinstance(result, (list, tuple)):
        return result
    return type(result)(parted_like(tensor, rows, dim) for tensor in result)


def in_memory_as(result: torch.Tensor, rows: RowsOnRanks, dim: int) -> RowsOnRanks:
    """Rows whose dimensions lie in memory as those of others, of their shape, do: random numbers come in that order."""
    shape = [*result.shape]
    shape[dim] = sum(rows.sizes)
    if rows.is_contiguous() or shape != [*rows.shape]:
        return RowsOnRanks.of(result, rows.sizes, dim)
    strides = torch.empty_like(torch.empty_strided(shape, rows.stride(), device="meta")).stride()
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    back = sorted(range(len(shape)), key=order.__getitem__)
    own = result.permute(order).contiguous().permute(back)
    return RowsOnRanks.of(own, rows.sizes, dim, None, shape, strides)


def map_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Functions of each row of their first argument, whatever its shape."""
    rows = args[0]
    if not is_parted(rows) or any(isinstance(value, torch.Tensor) for value in (*args[1:], *kwargs.values())):
        return NotImplemented
    result = func(rows.own, *args[1:], **kwargs)
    if kwargs.get("memory_format", torch.preserve_format) is not torch.preserve_format:
        return RowsOnRanks.of(result, rows.sizes, rows.part_dim)
    return parted_like(result, rows, rows.part_dim)


def move_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """To another device or dtype: of a batch that lies in every rank's memory, the rest goes when it is asked for."""
    return as_the_whole(map_rows(func, args, kwargs), func, args, kwargs)


def as_the_whole(result: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What was made of rows, with the origin by which the same can be made of the whole."""
    rows = args[0]
    if isinstance(result, RowsOnRanks) and rows.origin is not None and not rows.family.changes:
        result.origin = rows.origin.then(lambda whole: func(whole, *args[1:], **kwargs))
        if result.family is not rows.family:
            result.family.base = result.origin
    return result


def make_like(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """new_zeros and its relatives: rows of a shape of their own, of as many rows where that is possible."""
    rows, shape = args[0], list(args[1])
    dim, total = rows.part_dim, sum(rows.sizes)
    if len(shape) <= dim or shape[dim] != total or total < 2:
        return func(rows.own, *args[1:], **kwargs)
    shape[dim] = rows.sizes[own_rank()]
    return RowsOnRanks.of(func(rows.own, shape, *args[2:], **kwargs), rows.sizes, dim)


def make_plain(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """new_empty_strided: autograd makes gradients of views so, and writes into them by as_strided."""
    return func(args[0].own, *args[1:], **kwargs)


def map_along_dims(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Functions along dimensions: of each row alone, if the rows' own is not among them."""
    given = named(func, args, kwargs)
    rows = next((value for value in (*args, *kwargs.values()) if is_parted(value)), None)
    dims = given["dim"] if "dim" in given else given["dims"]
    if rows is None or not isinstance(args[0], torch.Tensor) or dims is None or rows.dim() == 0:
        return NotImplemented
    dims = [index % rows.dim() for index in (dims if isinstance(dims, (list, tuple)) else [dims])]
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    own = {id(tensor): own_alike(tensor, rows) if tensor.dim() == rows.dim() else None for tensor in tensors}
    changed = [value for argument, value in bound(func, args, kwargs) if writes(argument)]
    if not dims or rows.part_dim in dims or None in own.values() or not all(map(is_parted, changed)):
        return NotImplemented
    for tensor in changed:
        about_to_change(tensor)
    result = func(
        *(own.get(id(value), value) for value in args),
        **{key: own.get(id(value), value) for key, value in kwargs.items()},
    )
    if changed:
        return changed[0]
    first = result if isinstance(result, torch.Tensor) else result[0]
    gone = sum(dim < rows.part_dim for dim in dims) if first.dim() < rows.dim() else 0
    return parted_like(result, rows, rows.part_dim - gone)


class GradientFactor:
    """What gradients are multiplied by where they enter the rows of the model that was called last.

    ExactDDP multiplies the gradient of a large output by the number of ranks. A loss multiplies it by a number
    anyway, and if that number is multiplied beforehand, nobody has to go through the gradient's memory once more.
    Whoever asks for the numbers on the way has them without the factor.
    """

    now = 1.0


def gradient_factor(rows: RowsOnRanks) -> float:
    """The factor that a gradient of these rows may hold; none where a large number may be infinite."""
    return GradientFactor.now if rows.dtype in (torch.float32, torch.float64) else 1.0


def scaled_rows(numbers: torch.Tensor, sizes: Sequence[int], dim: int, times: float) -> RowsOnRanks:
    """Rows of which `numbers` holds the numbers times something."""
    rows = RowsOnRanks.of(numbers, sizes, dim)
    rows.family.times = times
    return rows


def softmax_gradient(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradients of softmax and log_softmax: what the gradient that comes holds more, that which goes holds, too."""
    gradient, output = args[:2]
    if is_parted(output) and not output.held.is_contiguous():  # torch 2.4 reads it as if it were
        args = gradient, RowsOnRanks.of(output.held, output.sizes, output.part_dim), *args[2:]
    if not is_parted(gradient) or gradient.family.times == 1:
        return map_along_dims(func, args, kwargs)
    layout = None, gradient.shape, gradient.stride()
    bare = RowsOnRanks.of(gradient.held, gradient.sizes, gradient.part_dim, *layout)
    result = map_along_dims(func, (bare, *args[1:]), kwargs)
    if result is not NotImplemented:
        result.family.times = gradient.family.times
    return result


def is_small(rows: RowsOnRanks) -> bool:
    """Whether to send the rows costs what it costs to send their sum: then each sum is what one process has."""
    return not is_large(rows.own, rows.sizes, rows.part_dim)


def add_up(parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The sums over the ranks of some small tensors, added in rank order, in one exchange."""
    flat = torch.cat([part.reshape(-1) for part in parts])
    world = world_size()
    totals = from_all_ranks(flat, [len(flat)] * world).view(world, -1)
    total = totals[0].clone()
    for row in totals[1:]:
        total += row
    return [
        piece.view(part.shape)
        for piece, part in zip(total.split([p.numel() for p in parts]), parts, strict=True)
    ]


def sum_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """sum over the rows' dimension, alone or with others: what the ranks have is added up."""
    result, rows = map_along_given_dims(func, args, kwargs), args[0]
    if result is not NotImplemented or not is_parted(rows):
        return result
    if is_small(rows) and not (counts(rows, kwargs.get("dtype")) and whole_is_far(rows)):
        return NotImplemented
    (total,) = add_up(
        [func(rows.own, *args[1:], **{**kwargs, "dtype": exact(rows.dtype, kwargs.get("dtype"))})]
    )
    return total.to(kwargs.get("dtype") or (rows.dtype if rows.is_floating_point() else total.dtype))


def counts(rows: RowsOnRanks, dtype: "torch.dtype | None") -> bool:
    """Whether sums are of whole numbers, which are the same in any order: of a mask, or of labels."""
    kinds = (rows.dtype, dtype or rows.dtype)
    return not any(kind.is_floating_point or kind.is_complex for kind in kinds)


def whole_is_far(rows: RowsOnRanks) -> bool:
    """Whether the whole would have to come from the other ranks."""
    if rows.kept is not None and rows.kept_at == rows.family.changes:
        return False
    return rows.origin is None or rows.family.changes > 0 or rows.origin.loaded.whole is None


def average_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mean over the rows' dimension, alone or with others."""
    result, rows = map_along_given_dims(func, args, kwargs), args[0]
    if result is not NotImplemented or not is_parted(rows):
        return result
    if is_small(rows):
        return NotImplemented
    given = named(func, args, kwargs)
    dims = [index % rows.dim() for index in given.get("dim") or range(rows.dim())]
    count = 1
    for dim in dims:
        count *= rows.shape[dim]
    own = torch.sum(rows.own, dims, given.get("keepdim", False), dtype=exact(rows.dtype, given["dtype"]))
    return (add_up([own])[0] / count).to(given["dtype"] or rows.dtype)


def exact(dtype: torch.dtype, requested: "torch.dtype | None") -> "torch.dtype | None":
    """The dtype to add in: half precision is rounded once, at the end."""
    return torch.float32 if (requested or dtype) in (torch.float16, torch.bfloat16) else requested


def combine_parts(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """max, min, any, all and norms of everything: of those of the ranks that have rows."""
    rows, given = args[0], named(func, args, kwargs)
    if not is_parted(rows) or not rows.numel() or given.get("dim") is not None or given.get("ord", 2) == 0:
        return NotImplemented
    size, at = rows.sizes[own_rank()], [min(size, 1) for size in rows.sizes]
    own = func(rows.own, *args[1:], **kwargs) if size else rows.own.new_empty(())
    result = from_all_ranks(own.reshape(1)[: at[own_rank()]], at)
    return func(result, *args[1:], **kwargs).reshape(own.shape)


def norm_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """linalg_vector_norm, along dimensions or of everything."""
    result = map_along_dims(func, args, kwargs)
    return combine_parts(func, args, kwargs) if result is NotImplemented else result


def map_along_given_dims(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = named(func, args, kwargs)
    return map_along_dims(func, args, kwargs) if "dim" in given or "dims" in given else NotImplemented


def make_view(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dim: int, own: Any, sizes: Any = None
) -> Any:
    """A view of rows: of the own rows with the same memory, and of the whole as torch would have it."""
    rows = args[0]
    whole = torch.empty_strided(rows.shape, rows.stride(), dtype=rows.dtype, device="meta")
    shape = func(whole, *args[1:], **kwargs)
    view = RowsOnRanks.of(own, sizes or rows.sizes, dim, rows.family, shape.shape, shape.stride())
    return as_the_whole(view, func, args, kwargs)


def reshape_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """view and its relatives, where the rows stay rows, or are split evenly, or merged with what is in each."""
    rows = args[0]
    shape = list(torch.empty(rows.shape, device="meta").reshape(args[1]).shape)
    place = reshaped_dim(list(rows.shape), rows.part_dim, shape) if rows.numel() else None
    if place is None:
        return NotImplemented
    dim, each = place  # each old row is so many of the new
    if any(size * each[0] % each[1] for size in rows.sizes):
        return NotImplemented
    sizes = tuple(size * each[0] // each[1] for size in rows.sizes)
    shape[dim] = sizes[own_rank()]
    return make_view(func, args, kwargs, dim, rows.held.view(shape), sizes)


def reshaped_dim(old: list[int], part_dim: int, new: list[int]) -> "tuple[int, tuple[int, int]] | None":
    """The dimension of the rows in another shape, and how many new rows (as a fraction) each old row is."""
    lead, inner, count = 1, 1, old[part_dim]
    for size in old[:part_dim]:
        lead *= size
    for size in old[part_dim + 1 :]:
        inner *= size
    before, after = 1, lead * count * inner
    for dim, size in enumerate(new):
        after //= size
        if before == lead and (size > 1 or count == 1):
            if inner % after == 0:
                return dim, (inner // after, 1)
            return (dim, (1, after // inner)) if after % inner == 0 else None
        before *= size
    return None


def permute_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """permute, transpose, t."""
    rows, given = args[0], named(func, args, kwargs)
    order = list(range(rows.dim()))
    if "dims" in given:
        order = [index % rows.dim() for index in given["dims"]]
    elif rows.dim() > 1:
        first, other = given.get("dim0", 0) % rows.dim(), given.get("dim1", 1) % rows.dim()
        order[first], order[other] = order[other], order[first]
    return make_view(func, args, kwargs, order.index(rows.part_dim), rows.held.permute(order))


def squeeze_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """squeeze, of dimensions other than the rows'."""
    rows, dim = args[0], named(func, args, kwargs).get("dim")
    dims = range(rows.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = [index % rows.dim() for index in dims if rows.shape[index] == 1] if rows.dim() else []
    if rows.part_dim in gone:
        return NotImplemented
    own = rows.held
    for index in sorted(gone, reverse=True):
        own = own.squeeze(index)
    return make_view(func, args, kwargs, rows.part_dim - sum(index < rows.part_dim for index in gone), own)


def unsqueeze_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    rows, dim = args[0], args[1] % (args[0].dim() + 1)
    return make_view(func, args, kwargs, rows.part_dim + (dim <= rows.part_dim), rows.held.unsqueeze(dim))


def expand_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """expand, where it does not make many rows of one."""
    rows, shape = args[0], list(args[1])
    dim = rows.part_dim + len(shape) - rows.dim()
    if shape[dim] not in (-1, sum(rows.sizes)):
        return NotImplemented
    shape[dim] = rows.sizes[own_rank()]
    return make_view(func, args, kwargs, dim, rows.held.expand(shape))


def select_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """x[:, 3]: of each row."""
    rows, dim = args[0], args[1] % args[0].dim()
    if dim == rows.part_dim:
        return NotImplemented
    return make_view(
        func, args, kwargs, rows.part_dim - (dim < rows.part_dim), rows.held.select(dim, args[2])
    )


def slice_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """x[:, 1:3], of each row; x[4:8], of those rows that a rank has."""
    rows, given = args[0], named(func, args, kwargs)
    dim, total = given["dim"] % rows.dim(), rows.shape[given["dim"]]
    if dim != rows.part_dim:
        own = rows.held[(slice(None),) * dim + (slice(given["start"], given["end"], given["step"]),)]
        return make_view(func, args, kwargs, rows.part_dim, own)
    start, end, step = slice(given["start"], given["end"], given["step"]).indices(total)
    if step != 1:
        return NotImplemented
    sizes, own, at = [], rows.held, 0
    for rank, size in enumerate(rows.sizes):
        first, last = max(start - at, 0), min(end - at, size)
        sizes.append(max(last - first, 0))
        if rank == own_rank():
            own = rows.held.narrow(dim, min(first, size), sizes[-1])
        at += size
    return make_view(func, args, kwargs, rows.part_dim, own, tuple(sizes))


def alias_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """detach, alias: the same memory."""
    rows = args[0]
    twin = RowsOnRanks.of(rows.held, rows.sizes, rows.part_dim, rows.family, rows.shape, rows.stride())
    twin.kept, twin.kept_at, twin.origin = rows.kept, rows.kept_at, rows.origin
    return twin


def pad_gradient(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradients of select and slice: zeros around what was picked of each row."""
    rows, shape, dim = args[0], list(args[1]), args[2] % len(args[1])
    select = func._schema.name.endswith("select_backward")
    place = rows.part_dim + (select and dim <= rows.part_dim)
    if dim == place or shape[place] != sum(rows.sizes):
        return NotImplemented
    shape[place] = rows.sizes[own_rank()]
    return RowsOnRanks.of(func(rows.own, shape, *args[2:]), rows.sizes, place)


def split_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """split and unbind, along other dimensions: of each row."""
    rows, given = args[0], named(func, args, kwargs)
    dim = given["dim"] % rows.dim()
    if dim == rows.part_dim:
        return NotImplemented
    whole = torch.empty_strided(rows.shape, rows.stride(), dtype=rows.dtype, device="meta")
    shapes, parts = func(whole, *args[1:], **kwargs), func(rows.held, *args[1:], **kwargs)
    place = rows.part_dim - (dim < rows.part_dim and parts[0].dim() < rows.dim())
    return [
        RowsOnRanks.of(part, rows.sizes, place, rows.family, shape.shape, shape.stride())
        for part, shape in zip(parts, shapes, strict=True)
    ]


def cat_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """cat and stack, of rows that lie alike, along another dimension."""
    tensors, dim = args[0], named(func, args, kwargs)["dim"]
    rows, new = next(filter(is_parted, tensors)), func._schema.name.endswith("stack")
    own = [own_alike(tensor, rows) if tensor.dim() == rows.dim() else None for tensor in tensors]
    dim %= rows.dim() + new
    if any(part is None for part in own) or not new and dim == rows.part_dim:
        return NotImplemented
    return RowsOnRanks.of(func(own, dim), rows.sizes, rows.part_dim + (new and dim <= rows.part_dim))


def multiply_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mm and bmm: rows times a matrix, or the sum over rows that both sides have."""
    first, other = args
    batched = first.dim() - 2
    if is_parted(first) and is_parted(other):
        if first.sizes != other.sizes:
            return NotImplemented
        if batched and first.part_dim == other.part_dim == 0:
            return RowsOnRanks.of(func(first.own, other.own), first.sizes, 0)
        if first.part_dim == batched + 1 and other.part_dim == batched:
            return add_up([func(first.own, other.own)])[0]
        return NotImplemented
    rows, whole = (first, plain_numbers(other)) if is_parted(first) else (other, plain_numbers(first))
    if batched and rows.part_dim == 0:
        own = own_slice(whole, rows.sizes, 0)
        return RowsOnRanks.of(func(rows.own, own) if rows is first else func(own, rows.own), rows.sizes, 0)
    if rows is first and rows.part_dim == batched:
        return RowsOnRanks.of(func(rows.own, whole), rows.sizes, batched)
    if rows is other and rows.part_dim == batched + 1:
        return RowsOnRanks.of(func(whole, rows.own), rows.sizes, batched + 1)
    own = own_slice(whole, rows.sizes, batched + 1 if rows is other else batched)
    return add_up([func(own, rows.own) if rows is other else func(rows.own, own)])[0]


def multiply_and_add_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """addmm: a bias that all rows have, plus rows times a matrix."""
    bias, first, other = args
    if (
        kwargs
        or is_parted(bias)
        or is_parted(other)
        or not is_parted(first)
        or first.part_dim
        or bias.dim() > 1
    ):
        return NotImplemented
    return RowsOnRanks.of(func(plain_numbers(bias), first.own, plain_numbers(other)), first.sizes, 0)


# torch's numbers for reduction=
NO_REDUCTION = 0


MEAN_REDUCTION = 1


SUM_REDUCTION = 2


def class_loss(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """nll_loss_forward: the sum of the weighted losses and the sum of the weights, over all rows."""
    rows, target, weight, reduction, ignored = args
    if not is_parted(rows) or rows.dim() < 2 or rows.part_dim:
        return NotImplemented
    own = own_alike(target, rows)
    if own is None:
        return NotImplemented
    if reduction == NO_REDUCTION:
        each, total = func(rows.own, own, weight, reduction, ignored)
        return RowsOnRanks.of(each, rows.sizes, 0), total
    if is_small(rows):
        return NotImplemented
    loss, weights = add_up(func(rows.own, own, weight, SUM_REDUCTION, ignored))
    return (loss / weights if reduction == MEAN_REDUCTION else loss), weights


def class_loss_gradient(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """nll_loss_backward; total_weight is that of all rows."""
    gradient, rows, target, weight, reduction, ignored, total = args
    if not is_parted(rows) or rows.dim() < 2 or rows.part_dim:
        return NotImplemented
    own = own_alike(target, rows)
    given = own_alike(gradient, rows) if reduction == NO_REDUCTION else plain_numbers(gradient)
    if own is None or given is None:
        return NotImplemented
    times = 1.0 if reduction == NO_REDUCTION else gradient_factor(rows)
    result = func(
        given if times == 1 else given * times,
        rows.own.contiguous(),
        own,
        weight,
        reduction,
        ignored,
        plain_numbers(total),
    )
    return scaled_rows(result, rows.sizes, 0, times)


def own_beside(value: Any, sizes: Sequence[int], place: int) -> Any:
    """The part of an argument that the own rows meet when both are broadcast; None if it does not lie alike.

    The rows' dimension is `place`, counted from the last; what is no tensor is its own part.
    """
    if is_parted(value):
        return value.own if (value.sizes, value.dim() - value.part_dim) == (sizes, place) else None
    if not isinstance(value, torch.Tensor):
        return value
    if value.dim() < place:
        return plain_numbers(value)
    if value.shape[-place] == sum(sizes):
        return own_slice(plain_numbers(value), sizes, value.dim() - place)
    return plain_numbers(value) if value.shape[-place] == 1 else None


def own_pair(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> "tuple[dict[str, Any], RowsOnRanks, dict[str, Any]] | None":
    """The arguments of a loss of each element beside its target's, its rows, and the own parts of the arguments."""
    given = named(func, args, kwargs)
    rows = next(filter(is_parted, given.values()))
    place = rows.dim() - rows.part_dim
    own = {name: own_beside(value, rows.sizes, place) for name, value in given.items()}
    lies_alike = all(own[name] is not None or value is None for name, value in given.items())
    return (given, rows, own) if lies_alike and given["self"].shape == rows.shape else None


def pair_loss(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mse_loss and its relatives: of each element beside its target's, then their mean or sum."""
    pair = own_pair(func, args, kwargs)
    if pair is None:
        return NotImplemented
    given, rows, own = pair
    reduction = given["reduction"]
    if reduction == NO_REDUCTION:
        return RowsOnRanks.of(func(**own), rows.sizes, rows.part_dim)
    if is_small(rows):
        return NotImplemented
    (total,) = add_up([func(**{**own, "reduction": SUM_REDUCTION})])
    return total / rows.numel() if reduction == MEAN_REDUCTION else total


def pair_loss_gradient(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mse_loss_backward and its relatives: the mean is over all rows."""
    pair = own_pair(func, args, kwargs)
    if pair is None:
        return NotImplemented
    given, rows, own = pair
    times = 1.0 if given["reduction"] == NO_REDUCTION else gradient_factor(rows)
    if given["reduction"] == MEAN_REDUCTION:
        own |= {"grad_output": own["grad_output"] / rows.numel(), "reduction": SUM_REDUCTION}
    if times != 1:
        own["grad_output"] = own["grad_output"] * times
    return scaled_rows(func(**own), rows.sizes, rows.part_dim, times)


def own_alike(tensor: torch.Tensor, rows: RowsOnRanks) -> "torch.Tensor | None":
    """The part of a tensor that lies beside these rows, in front or in the same shape; None if none does."""
    if is_parted(tensor):
        return tensor.own if (tensor.sizes, tensor.part_dim) == (rows.sizes, rows.part_dim) else None
    if tensor.dim() <= rows.part_dim or tensor.shape[rows.part_dim] != sum(rows.sizes):
        return None
    return own_slice(plain_numbers(tensor), rows.sizes, rows.part_dim)


def look_up_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """embedding: a row of the table for each index."""
    if is_parted(args[0]) or not is_parted(args[1]):
        return NotImplemented
    result = func(plain_numbers(args[0]), args[1].own, *args[2:], **kwargs)
    return RowsOnRanks.of(result, args[1].sizes, args[1].part_dim)


def sum_looked_up_gradient(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """embedding_dense_backward: what the ranks' rows add to the table's gradient."""
    gradient, indices, count, padding, by_frequency = args
    own = own_alike(gradient, indices) if is_parted(indices) else None
    if own is None or by_frequency:
        return NotImplemented
    return add_up([func(own, indices.own, count, padding, by_frequency)])[0]


def index_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """x[:, chosen]: from each row."""
    rows, indices = args
    if not is_parted(rows) or any(is_parted(index) for index in indices):
        return NotImplemented
    first = next(dim for dim, index in enumerate(indices) if index is not None)
    if first <= rows.part_dim or any(
        index is None for index in indices[first:]
    ):  # the row picked from, or moved
        return NotImplemented
    own = func(rows.own, [index if index is None else plain_numbers(index) for index in indices])
    return RowsOnRanks.of(own, rows.sizes, rows.part_dim)


def draw_like(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """rand_like and its relatives: all ranks draw for all rows, as one process would."""
    rows = args[0]
    whole = torch.empty_strided(rows.shape, rows.stride(), dtype=rows.dtype, device=rows.device)
    return func(whole, *args[1:], **kwargs)


def ways_by_name(ways: "dict[Way, str]") -> "dict[str, Way]":
    """The way of each function, from the functions of each way: aten's names with their overloads."""
    return {name: way for way, names in ways.items() for name in names.split()}


# Beside these: map_elements for all that torch itself says is pointwise (torch.Tag.pointwise).
WAYS = ways_by_name(
    {
        map_rows: "clone empty_like zeros_like ones_like full_like is_pinned",
        move_rows: "_to_copy _pin_memory",
        map_elements: """copy_ fill_.Scalar fill_.Tensor zero_ where.self leaky_relu_backward elu_backward
            softplus_backward hardtanh_backward hardswish hardswish_backward hardsigmoid_backward""",
        make_like: "new_empty new_zeros new_ones new_full",
        make_plain: "new_empty_strided",
        draw_like: "rand_like randn_like randint_like randint_like.low_dtype",
        map_along_dims: """amax
            amin max.dim min.dim argmax argmin logsumexp prod.dim_int any.dim all.dim any.dims all.dims
            var.correction std.correction var_mean.correction std_mean.correction var.dim std.dim norm.ScalarOpt_dim
            norm.ScalarOpt_dim_dtype median.dim mode kthvalue nansum cumsum cumprod sort sort.stable argsort topk
            _softmax _log_softmax cummax cummin flip gather glu
            logcumsumexp scatter.src scatter.value scatter_.src scatter_.value scatter_add scatter_add_""",
        softmax_gradient: "_softmax_backward_data _log_softmax_backward_data",
        sum_rows: "sum sum.dim_IntList",
        average_rows: "mean mean.dim",
        combine_parts: "max min any all",
        norm_rows: "linalg_vector_norm",
        reshape_rows: "view _unsafe_view _reshape_alias",
        permute_rows: "permute transpose.int t",
        squeeze_rows: "squeeze squeeze.dim squeeze.dims",
        unsqueeze_rows: "unsqueeze",
        expand_rows: "expand",
        select_rows: "select.int",
        slice_rows: "slice.Tensor",
        index_rows: "index.Tensor",
        alias_rows: "detach alias lift_fresh",
        pad_gradient: "select_backward slice_backward",
        split_rows: "split.Tensor split_with_sizes unbind.int",
        cat_rows: "cat stack",
        multiply_rows: "mm bmm",
        multiply_and_add_rows: "addmm",
        look_up_rows: "embedding",
        sum_looked_up_gradient: "embedding_dense_backward",
        class_loss: "nll_loss_forward nll_loss2d_forward",
        class_loss_gradient: "nll_loss_backward nll_loss2d_backward",
        pair_loss: """mse_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss
            binary_cross_entropy_with_logits""",
        pair_loss_gradient: """mse_loss_backward smooth_l1_loss_backward huber_loss_backward
            binary_cross_entropy_backward soft_margin_loss_backward""",
    }
)


def shard(make: "Callable[..., DataLoader[Any]]", *args: Any, **kwargs: Any) -> "DataLoader[Any]":
    """The loader that make(*args, **kwargs) gives, for one rank: of each batch it loads only this rank's rows.

    The script sees whole batches (RowsOnRanks). All ranks draw from the same random streams, so that they agree on
    every batch. Rank r takes the rows that torch.chunk(batch, world)[r] would hold: ceil(rows / world) of them, so
    the last are fewer, or none. In everything else (len, dataset, sampler, batch_size) it answers as the whole
    loader. In threads, child processes and where rank 0 is alone it is the whole loader.
    """
    loader, world = make(*args, **kwargs), world_size()
    if world == 1:
        return loader
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        raise TypeError(
            "shard needs a loader of batches from a map-style data set: neither an IterableDataset nor "
            "batch_size=None. Let every rank load the whole batches instead: leave the loader as it is."
        )
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise TypeError(
            f"shard does not know how {type(loader).__name__} iterates. Let every rank load the whole "
            "batches instead: leave the loader as it is."
        )
    return ShardedLoader(loader, own_rank(), world)


class ShardedLoader(DataLoader[Any]):
    """A DataLoader with another's settings that loads one rank's rows of each of its batches."""

    differs_by_rank = True  # nothing that replicas fill, see shared_state.py

    def __init__(self, loader: "DataLoader[Any]", rank: int, world: int) -> None:
        vars(self).update(vars(loader))
        self.whole = loader
        self.share = Share(rank, world, own_streams=loader.num_workers == 0)
        self.worker_init_fn = WorkerStart(loader.worker_init_fn, rank)
        self.in_order = True  # or else the ranks' batches could come in different orders

    @property
    def _index_sampler(self) -> "RankIndices":
        """Where DataLoader's iterators find the indices of a batch, see torch/utils/data/dataloader.py."""
        return RankIndices(self.batch_sampler, self.share)

    def __iter__(self) -> Any:
        if not all_ranks_are_here():
            return iter(self.whole)
        self.share.sizes = deque()
        return RankBatches(super().__iter__(), self.share, len(self))


class Share:
    """One rank's share of a loader, and the numbers of rows of all ranks in the batches that are on their way."""

    def __init__(self, rank: int, world: int, own_streams: bool) -> None:
        self.rank = rank
        self.world = world
        self.streams = LoadingStreams(rank) if own_streams else None
        self.sizes: deque[tuple[int, ...]] = deque()


class RankIndices:
    """The whole loader's batches of indices, each cut to this rank's chunk."""

    def __init__(self, batches: Any, share: Share) -> None:
        self.batches = batches
        self.share = share

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[Any]]:
        return self.indices(self.share.sizes)

    def indices(self, sizes: "deque[tuple[int, ...]]") -> Iterator[list[Any]]:
        """The indices to load; how many of them are which rank's goes to sizes."""
        world = self.share.world
        for batch in map(list, self.batches):
            rows = own_rows(batch, self.share.rank, world)
            sizes.append(with_empty_ranks(sizes_of_chunks(len(batch), world), world))
            if self.share.streams:
                self.share.streams.enter()  # from here to the end of RankBatches.__next__
            yield rows or batch[:1]


def own_rows(batch: list[Any], rank: int, world: int) -> list[Any]:
    """Chunk r of a batch as torch.chunk cuts it: 5 rows over 4 ranks are 2, 2, 1, none."""
    size = -(-len(batch) // world)
    return batch[rank * size : (rank + 1) * size]


class RankBatches:
    """One pass over a sharded loader."""

    differs_by_rank = True

    def __init__(self, batches: Iterator[Any], share: Share, length: int) -> None:
        self.batches = batches
        self.streams = share.streams
        self.sizes = share.sizes
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> "RankBatches":
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self.batches)
        finally:
            if self.streams:
                self.streams.leave()
        return see_whole(batch, self.sizes.popleft())


class LoadingStreams:
    """Random streams for what a rank's rows draw while they are loaded in the rank's own process.

    The script's streams must not move by it, since the other ranks load other rows. And the ranks must not
    draw the same numbers, or the first row of each would get the same augmentation.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.own: dict[str, Any] = {}
        self.script: dict[str, Any] = {}

    def enter(self) -> None:
        """Draw from the rank's own streams from now on."""
        self.script = random_streams()
        if self.own:
            set_random_streams(self.own)
        else:
            vary_streams(self.rank)

    def leave(self) -> None:
        """Draw from the script's streams again."""
        if self.script:
            self.own = random_streams()
            set_random_streams(self.script)
            self.script = {}


class WorkerStart:
    """A worker_init_fn after which the workers of each rank draw numbers of their own."""

    def __init__(self, start: Callable[[int], None] | None, rank: int) -> None:
        self.start = start
        self.rank = rank

    def __call__(self, worker: int) -> None:
        if self.start is not None:
            self.start(worker)
        vary_streams(self.rank)


def vary_streams(rank: int) -> None:
    """Lead the host's random streams another way on each rank; rank 0 stays on its way."""
    if rank == 0:
        return
    torch.default_generator.manual_seed(int(torch.randint(2**62, ())) + rank)
    random.seed(random.getrandbits(62) + rank)
    if "numpy" in sys.modules:
        numpy = sys.modules["numpy"]
        numpy.random.seed((int(numpy.random.randint(2**31)) + rank) % 2**32)


def without_rows(batch: Any) -> Any:
    """The batch with none of its rows: tensors and arrays of length 0, empty lists, in the same form."""
    if isinstance(batch, dict):
        return type(batch)((key, without_rows(value)) for key, value in batch.items())
    if is_nested(batch):
        parts = [without_rows(part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch[:0] if isinstance(batch, (list, tuple)) or hasattr(batch, "shape") and batch.shape else batch


def see_whole(batch: Any, sizes: Sequence[int]) -> Any:
    """This rank's rows of a batch, of which rank r has sizes[r], as the whole batch that the script sees.

    Tensors become RowsOnRanks. Lists of other things (file names, say) and arrays are joined at once. A rank
    without rows brings a batch of one, to show what it looks like.
    """
    leaves: list[Any] = []
    form = take_apart(batch, leaves)
    tensors = {id(leaf): leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim() > 0}
    parted = {name: part_loaded(leaf, sizes) for name, leaf in tensors.items()}  # one twice is one, too
    others = [leaf for leaf in leaves if id(leaf) not in parted]
    own = others if sizes[own_rank()] else [without_rows(leaf) for leaf in others]
    joined = map(join_leaf, zip(*exchange(own), strict=True)) if others else iter(())
    return put_together(form, [parted[id(leaf)] if id(leaf) in parted else next(joined) for leaf in leaves])


def part_loaded(own: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """One tensor of a batch."""
    size = sizes[own_rank()]
    if own.shape[0] != (size or 1):
        raise ValueError(
            f"{size or 1} samples have become a tensor of {own.shape[0]} rows, so that its rows cannot be told. "
            "Let rank 0 load the batches: share(DataLoader, ...) in place of shard(DataLoader, ...)."
        )
    loaded = LoadedRows(own[:size], sizes)
    await_forward(loaded)
    return rows_of_loaded(loaded)


# How a tensor goes from the ranks to the whole: (dim, sizes) if rank r holds sizes[r] of its rows along dim,
# None if each rank holds a copy, whose gradients add up; its shape if these gradients may be sparse.
Layout = tuple[int, tuple[int, ...]] | torch.Size | None


class ScatterToRanks(torch.autograd.Function):
    """What all ranks hold alike becomes each rank's own: its copy, or its rows.

    The backward pass is GatherFromRanks, whose backward pass is ScatterToRanks, and so on: gradients of gradients work.
    The first output, a zero called the link, belongs to every result of the ranks' work. So the backward pass
    comes by here on every rank, once, also on a rank without rows; or else the others would wait for it.
    """

    @staticmethod
    def forward(ctx: Any, layouts: Sequence[Layout], *whole: torch.Tensor) -> tuple[torch.Tensor, ...]:
        link = whole[0].new_zeros((), dtype=torch.float32)
        own = (link, *(own_part(tensor, layout) for tensor, layout in zip(whole, layouts, strict=True)))
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
        link_gradient, *sums = (
            add_gradients(gradients, *form) for gradients, form in zip(each, ctx.forms, strict=True)
        )
        ctx.early = []
        if torch.is_grad_enabled():  # there will be gradients of gradients
            (link,) = ctx.saved_tensors
            link_gradient = link + link_gradient
        return None, *GatherFromRanks.apply(ctx.layouts, link_gradient, *sums)


class GatherFromRanks(torch.autograd.Function):
    """What each rank holds becomes what all ranks hold alike: the sum of copies, or all rows in order."""

    @staticmethod
    def forward(
        ctx: Any, layouts: Sequence[Layout], link: torch.Tensor, *own: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.layouts = layouts
        pairs = list(zip(own, layouts, strict=True))
        sums = iter(sum_over_ranks([tensor for tensor, layout in pairs if layout is None]))
        return tuple(next(sums) if layout is None else join_ranks(tensor, layout) for tensor, layout in pairs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return None, *ScatterToRanks.apply(ctx.layouts, *gradients)


class RowsIntoWhole(torch.autograd.Function):
    """GatherFromRanks of rows whose whole is there already; it is in a list, to be no input.

    The gradient of the own rows is multiplied by a factor.
    """

    @staticmethod
    def forward(
        ctx: Any,
        layout: tuple[int, tuple[int, ...]],
        factor: float,
        whole: list[torch.Tensor],
        link: torch.Tensor,
        own: torch.Tensor,
    ) -> torch.Tensor:
        ctx.layout, ctx.factor = layout, factor
        return whole[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        dim, sizes = ctx.layout
        if torch.is_grad_enabled():  # there will be gradients of gradients
            link, own = ScatterToRanks.apply((ctx.layout,), gradient)
            return None, None, None, link, own * ctx.factor
        link = torch.zeros((), device=gradient.device)
        return None, None, None, link, own_times(gradient, sizes, dim, ctx.factor)


def replica_is_done(link: torch.Tensor) -> None:
    """Tell the nodes that a link came through that the replica has run, and what comes next is the backward pass."""
    node: Any = link.grad_fn
    while (
        node is not None
    ):  # links go from one node to the next as first inputs; .to(device) may stand between
        if hasattr(node, "replica_is_done"):
            node.replica_is_done = True
        node = node.next_functions[0][0] if node.next_functions else None


def add_gradients(
    parts: Sequence[torch.Tensor | None], shape: torch.Size, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """The sum of gradients; zeros where there are none."""
    given = [gradient for gradient in parts if gradient is not None]
    if not given:
        return torch.zeros(shape, dtype=dtype, device=device)
    return sum(given[1:], start=given[0])


def own_part(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """This rank's part of a tensor that all ranks hold."""
    if tensor.is_sparse:
        return tensor.clone()
    if layout is None or isinstance(layout, torch.Size):
        return plain_numbers(tensor).view_as(tensor)
    return own_numbers(tensor, layout[1], layout[0]).clone()


def join_ranks(own: torch.Tensor, layout: tuple[int, tuple[int, ...]] | torch.Size) -> torch.Tensor:
    """The ranks' rows in order, or the sum of gradients that are sparse if those of all ranks with rows are."""
    if not isinstance(layout, torch.Size):
        return join_parts(own, layout[1], layout[0])
    numbers = (
        (own._indices().cpu(), own._values().cpu()) if own.is_sparse else own.cpu() if own.any() else None
    )
    shares = [each for each in exchange(numbers) if each is not None]
    parts = [
        torch.sparse_coo_tensor(each[0], each[1], layout) if isinstance(each, tuple) else each
        for each in shares
    ]
    if not all(part.is_sparse for part in parts):
        parts = [part.to_dense() if part.is_sparse else part for part in parts]
    return add_gradients(parts, layout, own.dtype, torch.device("cpu")).to(own.device)


def sum_over_ranks(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Each tensor's sum over the ranks, with one all_reduce for all tensors of a kind."""
    sums = [tensor.to_dense() if tensor.is_sparse else tensor for tensor in tensors]
    for places in group_by_kind(sums):
        flat = torch.cat([sums[i].reshape(-1) for i in places])
        torch.distributed.all_reduce(torch.view_as_real(flat) if flat.is_complex() else flat)
        parts = flat.split([sums[i].numel() for i in places])
        for i, part in zip(places, parts, strict=True):
            sums[i] = part.view(sums[i].shape)
    return sums


def group_by_kind(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """The positions of the tensors, grouped by dtype and device."""
    groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for i, tensor in enumerate(tensors):
        groups.setdefault((tensor.dtype, tensor.device), []).append(i)
    return list(groups.values())


def copy_from_rank(source: int, tensors: Sequence[torch.Tensor]) -> None:
    """Give these tensors the values they have on one rank, with one broadcast for all tensors of a device."""
    devices: dict[torch.device, list[torch.Tensor]] = {}
    for tensor in tensors:
        devices.setdefault(tensor.device, []).append(tensor.detach())
    for group in devices.values():
        flat = torch.cat([as_bytes(tensor) for tensor in group])
        torch.distributed.broadcast(flat, source)
        if own_rank() != source:
            parts = flat.split([tensor.numel() * tensor.element_size() for tensor in group])
            for tensor, part in zip(group, parts, strict=True):
                own = part if part.storage_offset() % tensor.element_size() == 0 else part.clone()
                tensor.data.copy_(own.view(tensor.dtype).view(tensor.shape))


AVERAGES = ("running_mean", "running_var", "num_batches_tracked")


def method_after_arrival(name: str) -> Callable[..., Any]:
    """A method of GuardedBuffers: first what rank 0 has arrives, then the table itself is asked."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.arrive()
        return getattr(self.held, name)(*args, **kwargs)

    return method


def method_on_names(name: str) -> Callable[..., Any]:
    """A method of GuardedBuffers that asks for no value, only for names."""

    def method(self: Any, *args: Any) -> Any:
        return getattr(self.held, name)(*args)

    return method


class GuardedBuffers(dict[str, Any]):
    """A module's table of buffers while rank 0's are newer: whoever looks at one waits until it has come.

    Attributes, buffers(), state_dict(), apply(), to(), copies and pickles all go through a module's table. As a dict
    it is empty: what gets past these methods finds nothing, rather than something old.
    """

    def __init__(self, held: dict[str, Any], arrive: Callable[[], None]) -> None:
        super().__init__()
        self.held, self.arrive = held, arrive

    __contains__ = method_on_names("__contains__")
    __iter__ = method_on_names("__iter__")
    __len__ = method_on_names("__len__")
    __reversed__ = method_on_names("__reversed__")
    keys = method_on_names("keys")
    __getitem__ = method_after_arrival("__getitem__")
    __setitem__ = method_after_arrival("__setitem__")
    __delitem__ = method_after_arrival("__delitem__")
    __eq__ = method_after_arrival("__eq__")
    __ne__ = method_after_arrival("__ne__")
    __or__ = method_after_arrival("__or__")
    __ror__ = method_after_arrival("__ror__")
    __repr__ = method_after_arrival("__repr__")
    get = method_after_arrival("get")
    items = method_after_arrival("items")
    values = method_after_arrival("values")
    copy = method_after_arrival("copy")
    pop = method_after_arrival("pop")
    popitem = method_after_arrival("popitem")
    setdefault = method_after_arrival("setdefault")
    update = method_after_arrival("update")
    clear = method_after_arrival("clear")
    __hash__ = None

    def __reduce_ex__(self, protocol: Any) -> Any:
        self.arrive()
        return type(self.held), (), None, None, iter(self.held.items())

    def __copy__(self) -> Any:
        self.arrive()
        return copy.copy(self.held)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self.arrive()
        return copy.deepcopy(self.held, memo)


class BuffersOfRankZero:
    """The parts of a module whose buffers rank 0 alone has as they are.

    All ranks run the same program, so what makes one of them look makes all of them look, and they meet. Rank 0 alone
    (inside alone()) looks at its own, which are right.
    """

    def __init__(self) -> None:
        self.parts: list[torch.nn.Module] = []
        self.rank, self.thread = 0, 0

    def leave(self, parts: Iterable[torch.nn.Module]) -> None:
        """From now on these parts' buffers are rank 0's, who has changed them."""
        self.rank, self.thread = own_rank(), threading.get_ident()
        guarded = {id(part) for part in self.parts}
        for part in parts:
            if type(part._buffers) is GuardedBuffers and id(part) not in guarded:
                part._buffers.arrive()
            if id(part) not in guarded:
                self.parts.append(part)
                if has_plain_table(part):
                    vars(part)["_buffers"] = GuardedBuffers(part._buffers, self.arrive)

    def arrive(self) -> None:
        """Let all ranks have rank 0's."""
        if not self.parts or self.can_do_without():
            return
        parts, self.parts = self.parts, []
        for part in parts:
            if type(part._buffers) is GuardedBuffers and part._buffers.arrive == self.arrive:
                vars(part)["_buffers"] = part._buffers.held
        copy_from_rank(0, tensors_of([held_buffers(part) for part in parts]))

    def can_do_without(self) -> bool:
        """Whether nobody is to meet here: on rank 0 alone, and where the ranks have parted."""
        if world_size() > 1 and threading.get_ident() == self.thread:
            return False
        parted = RANK_PROCESS not in os.environ
        if self.rank > 0 and not parted:
            raise RuntimeError(
                "A thread or child process of one rank looks at buffers (running averages) that rank 0 has. Look at "
                "them before it starts: list(model.buffers())"
            )
        return True


def held_buffers(part: torch.nn.Module) -> dict[str, Any]:
    """A part's table of buffers as it is, also while rank 0's are newer."""
    table: Any = part._buffers
    return table.held if type(table) is GuardedBuffers else table


def has_plain_table(part: torch.nn.Module) -> bool:
    """Whether a part keeps its buffers as modules do, and not in a scripted module."""
    return isinstance(vars(part).get("_buffers"), dict)


def tensors_of(tables: Iterable[dict[str, Any]]) -> list[torch.Tensor]:
    """The tensors in tables of buffers, each once."""
    return list(
        {id(tensor): tensor for table in tables for tensor in table.values() if tensor is not None}.values()
    )


def reads_no_buffer(part: torch.nn.Module) -> bool:
    """Whether a part has no buffers but running averages, which torch's own batch norm only writes in training."""
    return (
        part.training
        and isinstance(part, torch.nn.modules.batchnorm._NormBase)
        and not isinstance(part, torch.nn.SyncBatchNorm)
        and type(part).forward.__module__.startswith("torch.nn.modules.")
        and not (part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part))
        and all(name in AVERAGES for name in held_buffers(part))
    )


@functools.cache
def names_averages(kind: Any) -> bool:
    """Whether methods of a module's class, or functions that they call by name, name running averages, or tables of
    buffers; torch's own are left out. Its forward may read those of a part, in training too.
    """
    own = [base for base in kind.__mro__ if not base.__module__.startswith("torch.")]
    functions = [value for base in own for value in vars(base).values() if isinstance(value, FunctionType)]
    named: set[Any] = set()
    for function in functions:  # and those that are found on the way
        names = names_in(function.__code__)
        named |= names
        functions += [each for each in called_by_name(function, names) if each not in functions]
    return not named.isdisjoint(
        (*AVERAGES, "buffers", "named_buffers", "get_buffer", "state_dict", "_buffers")
    )


def names_in(code: CodeType) -> set[Any]:
    """The names and texts in a compiled function, and in those within it."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    texts = [each for each in code.co_consts if isinstance(each, str)]
    return {*code.co_names, *texts}.union(*map(names_in, inner))


def called_by_name(function: FunctionType, names: set[Any]) -> list[FunctionType]:
    """The functions, torch's own left out, that another one names: its module's, or those of modules that it names."""
    values = [function.__globals__.get(name) for name in names]
    modules = [vars(value) for value in values if isinstance(value, ModuleType)]
    values += [module.get(name) for module in modules for name in names]
    functions = [value for value in values if isinstance(value, FunctionType)]
    return [each for each in functions if not (each.__module__ or "").startswith("torch")]


def are_held_elsewhere(parts: Iterable[torch.nn.Module]) -> bool:
    """Whether something beside the parts' own tables holds a buffer, or a table: it would not see what comes later."""
    probe = {"_buffers": {"name": torch.zeros(1)}}
    once = names_of_buffers(probe)
    return any(
        not has_plain_table(part) or names != once[0]
        for part in parts
        if held_buffers(part) and type(part._buffers) is not GuardedBuffers
        for names in (names_of_buffers(vars(part)) if has_plain_table(part) else once)
    )


def names_of_buffers(holder: dict[str, Any]) -> list[tuple[int, int, int]]:
    """For each buffer in a table: names of the table and of the tensor in Python, and tensors that share its memory."""
    users: Any = getattr(torch._C, "_storage_Use_Count", lambda storage: 0)
    return [
        (
            sys.getrefcount(holder["_buffers"]),
            sys.getrefcount(holder["_buffers"][name]),
            users(holder["_buffers"][name].untyped_storage()._cdata),
        )
        for name in list(holder["_buffers"])
        if holder["_buffers"][name] is not None
    ]


def is_of_library(name: str) -> bool:
    """Whether a module is Python's, installed, or dp2ddp's own."""
    places = (sysconfig.get_path(place) for place in ("stdlib", "platstdlib", "purelib", "platlib"))
    libraries = (*places, os.path.dirname(os.path.dirname(torch.__file__)))
    package = name.partition(".")[0]  # torch.ops, for one, names a file that is none
    paths = (getattr(sys.modules.get(module), "__file__", None) or "" for module in (name, package))
    return package == "dp2ddp" or any(path.startswith(libraries) for path in paths)


EARLY_BYTES = 2**20


BUCKET_BYTES = 25 * 2**20


TOO_LATE = (
    "A hook came to a parameter between a forward pass and its backward pass, when the ranks had settled how its "
    "gradient is summed. Register it before the forward pass."
)


SOON = 2**62


class SumsOfModel:
    """What is known of how one model's gradients are summed."""

    def __init__(self) -> None:
        self.at_once = False  # all ranks have agreed that nothing waits
        # Of this rank: something looks at gradients on their way into .grad, or adds to them there.
        self.met_others = False
        # Of this rank: backward passes so far, and whether reentrant checkpoints brought gradients apart from the rest.
        self.passes = 0
        self.met_reentrant = False

    @property
    def may_set_out(self) -> bool:
        """Whether this rank saw backward passes in which all gradients of a layer came together."""
        return self.passes > 0 and not self.met_reentrant


class Crossing:
    """One forward pass of a model, from the parameters that all ranks hold to this rank's replica."""

    def __init__(self, model: SumsOfModel) -> None:
        self.model = model
        self.nodes: list[Any] = []  # those of CopiesForReplica
        self.sets_out = False  # all ranks have agreed that large sums begin as soon as they can

    def settle(self, at_once: bool, sets_out: bool) -> None:
        """All ranks have told of their forward passes."""
        self.model.at_once |= at_once
        self.sets_out = sets_out and not self.model.at_once
        for node in self.nodes if self.sets_out else ():
            node._set_sequence_nr(SOON)
        self.nodes.clear()


class CopiesForReplica(torch.autograd.Function):
    """ScatterToRanks of parameters: what all ranks hold alike becomes this rank's copies, whose gradients add up.

    The first output is the link (see ScatterToRanks). The last parameters of a module are the first to have their
    gradients, so their node is made last: links go from one to the next, and sums set out in the same order on all
    ranks.
    """

    @staticmethod
    def forward(
        ctx: Any, crossing: Crossing, link: torch.Tensor, *parameters: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.crossing, ctx.parameters = crossing, parameters
        ctx.set_materialize_grads(False)
        ctx.replica_is_done, ctx.early, ctx.sum = False, [], None
        own = (link.clone(), *(parameter.view_as(parameter) for parameter in parameters))
        ctx.forms = [(tensor.shape, tensor.dtype, tensor.device) for tensor in own]
        ctx.save_for_backward(own[0])
        return own

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        if gradients[0] is None and ctx.replica_is_done:  # a reentrant checkpoint: see ScatterToRanks
            ctx.crossing.model.met_reentrant = True
            if ctx.sum is None:
                ctx.early.append(gradients)
            else:
                ctx.sum.add_later(gradients[1:])
            return (None,) * (2 + len(ctx.parameters))
        each = zip(*ctx.early, gradients, strict=True)
        link_gradient, *own = (
            add_gradients(gradients, *form) for gradients, form in zip(each, ctx.forms, strict=True)
        )
        ctx.early = []
        if torch.is_grad_enabled():  # there will be gradients of gradients
            (link,) = ctx.saved_tensors
            link_gradient = link + link_gradient
        ways = destinations(ctx)
        if ways == {"nowhere"}:  # asked for is the gradient of something else, of the inputs say
            return (None, link_gradient, *(None for _ in own))
        if ways == {"grad"} and not ctx.crossing.model.at_once and not torch.is_grad_enabled():
            if has_hooks(ctx.parameters):
                raise RuntimeError(TOO_LATE)
            LateSums.of_this_backward().add(ctx, own)
            return (None, link_gradient, *(None for _ in own))
        return (None, link_gradient, *GatherFromRanks.apply(tuple(None for _ in own), link_gradient, *own))


def copies_for_replica(
    crossing: Crossing, link: torch.Tensor, parameters: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The link, and copies of parameters for this rank's replica."""
    copies: list[torch.Tensor] = []
    for bucket in buckets_of(parameters):
        link, *some = CopiesForReplica.apply(crossing, link, *bucket)
        crossing.nodes.append(link.grad_fn)
        copies += some
    return link, copies


def buckets_of(parameters: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Parameters in their order, cut into as few parts as hold BUCKET_BYTES each."""
    buckets: list[list[torch.Tensor]] = []
    room = 0
    for parameter in parameters:
        size = parameter.nbytes
        if not buckets or size > room:
            buckets.append([])
            room = BUCKET_BYTES
        buckets[-1].append(parameter)
        room -= size
    return buckets


def destinations(ctx: Any) -> "set[str]":
    """Where the gradients of this node go in this backward pass: "grad", "nowhere", and "elsewhere" (autograd.grad)."""
    kinds = set()
    for node, _ in ctx.next_functions[1:]:
        if node is None:  # frozen since the wrap
            continue
        try:
            kinds.add("grad" if torch._C._will_engine_execute_node(node) else "nowhere")
        except RuntimeError:  # what torch answers where autograd.grad asks for a parameter's gradient
            kinds.add("elsewhere")
    return kinds


def has_hooks(parameters: Sequence[torch.Tensor]) -> bool:
    """Whether something looks at gradients of these parameters before, or when, they have come into .grad."""
    return any(
        parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)
        for parameter in parameters
    )


class LateSum:
    """Gradients by one node of CopiesForReplica, which add up over the ranks in one backward pass."""

    def __init__(self, ctx: Any, gradients: Sequence[torch.Tensor]) -> None:
        self.node, self.crossing = ctx, ctx.crossing
        self.parameters: Sequence[torch.Tensor] = ctx.parameters
        self.before = [state_of_gradient(parameter) for parameter in ctx.parameters]
        self.gradients = [*gradients]
        self.flats: list[
            tuple[list[int], torch.Tensor]
        ] = []  # gradients of a kind in a row, and their places
        self.works: list[Any] = []  # once it has set out
        self.rest: list[LateSum] = []  # what came when it had set out

    def add_later(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Gradients that came by themselves, when the others had been here."""
        given = [
            torch.zeros_like(p) if gradient is None else gradient
            for p, gradient in zip(self.parameters, gradients, strict=True)
        ]
        if self.works:
            self.rest.append(LateSum(self.node, given))
        else:
            self.gradients = [more + before for more, before in zip(given, self.gradients, strict=True)]

    def flatten(self) -> None:
        """Lay the gradients in rows."""
        self.flats = [
            (places, torch.cat([self.gradients[i].reshape(-1) for i in places]))
            for places in group_by_kind(self.gradients)
        ]
        self.gradients = []

    def totals(self) -> list[torch.Tensor]:
        """The sums, one for each parameter."""
        gradients = [*self.parameters]
        for places, flat in self.flats:
            parts = flat.split([self.parameters[i].numel() for i in places])
            for i, part in zip(places, parts, strict=True):
                gradients[i] = part.view(self.parameters[i].shape)
        return gradients


class LateSums:
    """All sums of one backward pass, in the order in which its gradients came."""

    passes: "dict[int, LateSums]" = {}  # by the number that autograd has for it

    def __init__(self) -> None:
        self.sums: list[LateSum] = []

    @classmethod
    def of_this_backward(cls) -> "LateSums":
        """Those of the backward pass that this runs in."""
        number = torch._C._current_graph_task_id()
        if number not in cls.passes:
            sums = cls.passes[number] = LateSums()
            torch.autograd.Variable._execution_engine.queue_callback(lambda: sums.finish(number))
        return cls.passes[number]

    @classmethod
    def forget(cls) -> None:
        """Outside of any backward pass: one that raised has left its sums, and they are nobody's."""
        if cls.passes and torch._C._current_graph_task_id() == -1:
            cls.passes.clear()

    def add(self, ctx: Any, gradients: Sequence[torch.Tensor]) -> None:
        """Add up a node's gradients over the ranks by the end of the backward pass."""
        late = ctx.sum = LateSum(ctx, gradients)
        self.sums.append(late)
        if ctx.crossing.sets_out and sum(gradient.nbytes for gradient in gradients) >= EARLY_BYTES:
            late.flatten()
            late.works = [start_sum(flat) for _, flat in late.flats]

    def finish(self, number: int) -> None:
        """The backward pass is over: let all gradients be whole."""
        del self.passes[number]
        for late in self.sums:
            late.node.sum = late.node = None
        every = [each for late in self.sums for each in (late, *late.rest)]
        for model in {id(late.crossing.model): late.crossing.model for late in every}.values():
            model.passes += 1
        sum_together([late for late in every if not late.works])
        for late in every:
            for work in late.works:
                work.wait()
        with torch.no_grad():
            give_sums(every)


def sum_together(sums: Sequence[LateSum]) -> None:
    """Begin sums that have not set out, with one collective for all gradients of a kind."""
    for late in sums:
        late.flatten()
    rows = [(late, i) for late in sums for i in range(len(late.flats))]
    for group in group_by_kind([late.flats[i][1] for late, i in rows]):
        some = [rows[place] for place in group]
        flats = [late.flats[i][1] for late, i in some]
        whole = flats[0] if len(flats) == 1 else torch.cat(flats)
        work = start_sum(whole)
        for (late, i), part in zip(some, whole.split([flat.numel() for flat in flats]), strict=True):
            late.flats[i] = late.flats[i][0], part
            late.works.append(work)


def give_sums(sums: Sequence[LateSum]) -> None:
    """Add sums to .grad: what came from several forward passes adds up first, as in autograd's buffers."""
    totals: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for late in sums:
        for p, before, total in zip(late.parameters, late.before, late.totals(), strict=True):
            if id(p) in totals:
                total = totals[id(p)][1] + total
            elif state_of_gradient(p) != before:
                late.crossing.model.met_others = True
            totals[id(p)] = p, total
    wanting = [pair for pair in totals.values() if pair[0].requires_grad]
    have = [(p.grad, total) for p, total in wanting if p.grad is not None]
    for p, total in wanting:
        if p.grad is None:
            p.grad = total if p.is_contiguous() else torch.empty_like(p).copy_(total)
    if have:
        torch._foreach_add_([grad for grad, _ in have], [total for _, total in have])


def state_of_gradient(parameter: torch.Tensor) -> tuple[Any, int]:
    """Which tensor .grad is, and a number that grows when something is added to it."""
    gradient = parameter.grad
    return (None, 0) if gradient is None else (id(gradient), gradient._version)


def start_sum(flat: torch.Tensor) -> Any:
    """Begin to add up a tensor over the ranks, in place."""
    real = torch.view_as_real(flat) if flat.is_complex() else flat
    return torch.distributed.all_reduce(real, async_op=True)


# Bytes of a first message; what is longer needs a second round.
FRAME = 2048


# Bytes of a rank's tensors that still travel in its message.
SMALL = 64 * 1024


@dataclass(frozen=True)
class RankMessage:
    """What one rank brought: a value, and its tensors, if they were small."""

    value: Any
    tensors: list[torch.Tensor] | None
    waiting: list[torch.Tensor]


class StepExchange:
    """Messages of all ranks, in frames as long as the last ones of their kind; what is longer needs a second round."""

    def __init__(self) -> None:
        self.lengths: dict[Hashable, tuple[int, ...]] = {}
        self.known: dict[bytes, Any] = {}

    def exchange(
        self, kind: Hashable, value: Any, tensors: Sequence[torch.Tensor], arguments: Any = ()
    ) -> list[RankMessage]:
        """What every rank brought, in rank order; all of them name the same kind. `arguments`: of the forward pass."""
        small = are_small(tensors)
        content = pack_message(value, tensors if small else None, waiting_beside(arguments, small))
        frame = max(self.lengths.get(kind, (FRAME,)))
        frames = gather_frames(content[:frame].ljust(frame, b"\0"))
        lengths = [int.from_bytes(each[:8], "little") for each in frames]
        if max(lengths) > frame:
            rests = gather_frames(content[frame:].ljust(max(lengths) - frame, b"\0"))
            frames = [each + rest for each, rest in zip(frames, rests, strict=True)]
        self.lengths[kind] = (*self.lengths.get(kind, ())[-1:], next_multiple(max(lengths), 256))
        heads = [bytes(each[16 : 16 + int.from_bytes(each[8:16], "little")]) for each in frames]
        self.known = {head: self.known[head] if head in self.known else pickle.loads(head) for head in heads}
        messages = [
            unpack_message(self.known[head], frame, rank)
            for rank, (head, frame) in enumerate(zip(heads, frames, strict=True))
        ]
        take_in([message.waiting for message in messages])
        return messages


def are_small(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether tensors may travel in a message."""
    return all(map(is_plain_on_host, tensors)) and sum(t.numel() * t.element_size() for t in tensors) <= SMALL


def pack_message(
    value: Any, tensors: "Sequence[torch.Tensor] | None", waiting: Sequence[torch.Tensor]
) -> bytearray:
    """A message: its length, that of its head, the head, and the tensors."""
    all_tensors = [*(tensors or ()), *waiting]
    forms = [[(tensor.dtype, tensor.shape) for tensor in each] for each in (tensors or (), waiting)]
    head = pickle_or_explain((value, tensors is not None, *forms))
    ends = [next_multiple(16 + len(head), 16)]
    for tensor in all_tensors:
        ends.append(next_multiple(ends[-1] + tensor.numel() * tensor.element_size(), 16))
    content = bytearray(ends[-1])
    content[: 16 + len(head)] = ends[-1].to_bytes(8, "little") + len(head).to_bytes(8, "little") + head
    memory = torch.frombuffer(content, dtype=torch.uint8)
    for start, tensor in zip(ends, all_tensors, strict=False):
        memory[start : start + tensor.numel() * tensor.element_size()] = as_bytes(
            tensor.detach().contiguous()
        )
    return content


def unpack_message(head: Any, frame: bytearray, rank: int) -> RankMessage:
    """The message whose head has been read; its tensors lie in the frame."""
    if isinstance(head, pickle.PicklingError):
        raise TypeError(f"rank {rank} cannot send this to the other ranks: {head}")
    value, has_tensors, *forms = head
    start = next_multiple(16 + int.from_bytes(frame[8:16], "little"), 16)
    lists: list[list[torch.Tensor]] = [[], []]
    for dtype, shape, tensors in (
        (*form, place) for each, place in zip(forms, lists, strict=True) for form in each
    ):
        count = shape.numel()
        if count == 0:
            tensors.append(torch.empty(shape, dtype=dtype))
            continue
        tensors.append(torch.frombuffer(frame, dtype=dtype, count=count, offset=start).view(shape))
        start = next_multiple(start + count * tensors[-1].element_size(), 16)
    return RankMessage(value, lists[0] if has_tensors else None, lists[1])


def is_plain_on_host(tensor: torch.Tensor) -> bool:
    """Whether a tensor is in the host's memory, as it looks."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def next_multiple(length: int, unit: int) -> int:
    """The next multiple of a unit."""
    return -(-length // unit) * unit


def gather_frames(content: bytearray) -> list[bytearray]:
    """Every rank's bytes, as many of them on each rank."""
    frames = [bytearray(len(content)) for _ in range(world_size())]
    places = [torch.frombuffer(place, dtype=torch.uint8) for place in frames]
    torch.distributed.all_gather(places, torch.frombuffer(content, dtype=torch.uint8))
    return frames


@dataclass(frozen=True)
class TensorMeta:
    """What the other ranks need to know of a tensor in a replica's output."""

    place: int
    shape: torch.Size
    dtype: torch.dtype
    needs_gradient: bool
    order: tuple[int, ...] = ()  # its dimensions, as they lie in memory
    channels_last: bool = False


@dataclass(frozen=True)
class ContainerMeta:
    """A dict, list, tuple or other iterable in a replica's output."""

    kind: type
    keys: tuple[Any, ...]
    items: tuple[Any, ...]


@dataclass(frozen=True)
class OpaqueMeta:
    """Anything else in a replica's output: DataParallel cannot gather it."""

    kind: type


def meta_of(tensor: torch.Tensor, place: int) -> TensorMeta:
    """What the other ranks need to know of the tensor at this place in the list."""
    order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride()[dim]) if not tensor.is_sparse else ()
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    last = last and not tensor.is_contiguous()
    return TensorMeta(place, tensor.shape, tensor.dtype, tensor.requires_grad, tuple(order), last)


def describe_output(
    output: Any, tensors: list[torch.Tensor]
) -> TensorMeta | ContainerMeta | OpaqueMeta | None:
    """A replica's output as the other ranks may see it; its tensors go to the list."""
    if isinstance(output, torch.Tensor):
        tensors.append(output)
        return meta_of(output, len(tensors) - 1)
    if output is None:
        return None
    if isinstance(output, dict):
        items = tuple(describe_output(item, tensors) for item in output.values())
        return ContainerMeta(type(output), tuple(output), items)
    if isinstance(output, str) or not hasattr(output, "__iter__"):
        return OpaqueMeta(type(output))
    return ContainerMeta(type(output), (), tuple(describe_output(item, tensors) for item in output))


def gather_outputs(outputs: Sequence[Any], join: Callable[[Sequence[TensorMeta]], torch.Tensor]) -> Any:
    """The replicas' described outputs as one, by DataParallel's rules: the first replica sets the form."""
    first = outputs[0]
    if isinstance(first, TensorMeta):
        return join(outputs)
    if first is None:
        return None
    if isinstance(first, OpaqueMeta):
        if first.kind is str:
            return str(map(str, ()))  # what DataParallel makes of it: '<map object at ...>'
        raise TypeError(f"'{first.kind.__name__}' object is not iterable")
    if issubclass(first.kind, dict):
        return first.kind((key, gather_outputs(items, join)) for key, items in by_key(outputs))
    items = (gather_outputs(items, join) for items in zip(*(branch.items for branch in outputs), strict=True))
    return first.kind._make(items) if hasattr(first.kind, "_make") else first.kind(items)


def by_key(branches: Sequence[ContainerMeta]) -> list[tuple[Any, list[Any]]]:
    """The replicas' dicts: each key with the item that each replica has for it."""
    if any(len(branch.keys) != len(branches[0].keys) for branch in branches):
        raise ValueError("All dicts must have the same number of keys")
    dicts = [dict(zip(branch.keys, branch.items, strict=True)) for branch in branches]
    return [(key, [each[key] for each in dicts]) for key in branches[0].keys]


def joinable_shapes(metas: Sequence[TensorMeta], dim: int) -> list[torch.Size]:
    """The shapes of tensors that are to be joined along dim; numbers become vectors of one."""
    shapes = [meta.shape for meta in metas]
    if dim == 0 and not any(shapes):
        warnings.warn(
            "Was asked to gather along dimension 0, but all input tensors were scalars; "
            "will instead unsqueeze and return a vector.",
            stacklevel=2,
        )
        return [torch.Size([1]) for _ in shapes]
    rests = [(meta.dtype, len(meta.shape), meta.shape[:dim], meta.shape[dim:][1:]) for meta in metas]
    if any(rest != rests[0] for rest in rests):
        raise RuntimeError(
            f"Gather got tensors of shapes {[tuple(shape) for shape in shapes]} and types "
            f"{[meta.dtype for meta in metas]}, which cannot be joined along dimension {dim}"
        )
    return shapes


@dataclass(frozen=True)
class Contents:
    """What a module is made of, each thing once; looked up once for a forward pass."""

    parts: list[torch.nn.Module]
    parameters: list[torch.nn.Parameter]
    kept: list[
        torch.Tensor
    ]  # buffers of scripted modules, which make new objects for them whenever they are asked

    @property
    def buffers(self) -> list[torch.Tensor]:
        """Each time anew: what holds a buffer is taken for somebody who wants to see its changes."""
        return tensors_of(map(held_buffers, self.holders))

    @property
    def holders(self) -> list[torch.nn.Module]:
        """The parts that have buffers; each time anew, too, since calls of parts may register some."""
        return [part for part in self.parts if part._buffers]

    @property
    def is_training(self) -> bool:
        """Whether any part is in training mode."""
        return any(part.training for part in self.parts)

    @property
    def device(self) -> torch.device:
        """Where the module is."""
        for tensor in self.parameters or self.buffers:
            return tensor.device
        return torch.device("cuda" if torch.cuda.is_initialized() else "cpu")

    @functools.cached_property
    def trainable(self) -> list[torch.nn.Parameter]:
        """The parameters that want a gradient."""
        return [parameter for parameter in self.parameters if parameter.requires_grad]

    @functools.cached_property
    def is_compiled(self) -> bool:
        """Whether any part is what torch.compile has made of one."""
        return any(map(is_compiled, self.parts))

    def versions(self) -> tuple[list[int], list[int]]:
        """Numbers that grow when a buffer, or a parameter, is changed in place."""
        version = operator.attrgetter("_version")
        return [*map(version, self.buffers)], [*map(version, self.parameters)]


def contents_of(module: torch.nn.Module) -> Contents:
    """What a module is made of."""
    parts = parts_of(module)
    parameters = {
        id(parameter): parameter
        for part in parts
        for parameter in part._parameters.values()
        if parameter is not None
    }
    kinds = {kind for kind in set(map(type, parts)) if issubclass(kind, torch.jit.ScriptModule)}
    scripted = [part for part in parts if type(part) in kinds] if kinds else []
    return Contents(parts, list(parameters.values()), tensors_of(map(held_buffers, scripted)))


def parts_of(module: torch.nn.Module) -> list[torch.nn.Module]:
    """list(module.modules()), which takes four times as long."""
    modules: dict[int, torch.nn.Module] = {}
    waiting: list[torch.nn.Module | None] = [module]
    while waiting:
        part = waiting.pop()
        if part is not None and id(part) not in modules:
            modules[id(part)] = part
            if part._modules:
                waiting.extend(reversed(part._modules.values()))
    return list(modules.values())


def replica_of(
    module: torch.nn.Module,
    stand_ins: Mapping[int, torch.Tensor],
    parts: "Sequence[torch.nn.Module] | None" = None,
) -> torch.nn.Module:
    """A shallow copy of a module that computes with other tensors in place of some of its own, by their id().

    What forward assigns to self stays with the copy, as with DataParallel's replicas.
    """
    parts = parts_of(module) if parts is None else parts
    replicas = {id(part): empty_replica(part) for part in parts if not is_compiled(part)}
    for part in parts[::-1]:
        if is_compiled(part):
            replicas[id(part)] = compiled_replica(part, replicas[id(part._orig_mod)])
    for part in parts:
        fill_replica(part, replicas, stand_ins)
        bind_to_replicas(part, replicas)
    return replicas[id(module)]


def empty_replica(part: torch.nn.Module) -> torch.nn.Module:
    """A copy of a part without what it holds."""
    kind: Any = type(part)
    if not is_copied_plainly(kind):
        return part._replicate_for_data_parallel()
    replica: torch.nn.Module = object.__new__(kind)
    vars(replica).update(vars(part))
    vars(replica).update(_parameters={}, _buffers={}, _modules={}, _is_replica=True)
    return replica


def fill_replica(
    part: torch.nn.Module, replicas: Mapping[int, torch.nn.Module], stand_ins: Mapping[int, torch.Tensor]
) -> None:
    """Let a replica hold replicas of a part's parts, and tensors. Parameters are plain attributes, as replicas have."""
    kind: Any = type(part)
    replica = replicas[id(part)]
    own = vars(replica)
    plain = is_copied_plainly(kind)
    for name, child in part._modules.items():
        if plain:
            own["_modules"][name] = None if child is None else replicas[id(child)]
        elif child is not None:
            setattr(replica, name, replicas[id(child)])
    for name, parameter in part._parameters.items():
        if parameter is None:
            replica._parameters[name] = None
        elif plain and not hasattr(kind, name):
            own[name] = stand_ins.get(id(parameter), parameter)
        else:
            setattr(replica, name, stand_ins.get(id(parameter), parameter))
    for name, buffer in held_buffers(part).items():
        if plain:
            own["_buffers"][name] = None if buffer is None else stand_ins.get(id(buffer), buffer)
        elif buffer is not None:
            setattr(replica, name, stand_ins.get(id(buffer), buffer))


def are_plain_layers(parts: Sequence[torch.nn.Module], have_copies: bool) -> bool:
    """Whether parts run as their classes have it, without hooks, and can compute with other parameters if they must."""
    if any(part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part) for part in parts):
        return False
    if not all(map(is_known_layer, set(map(type, parts)))) or any(map(renews_rows, parts)):
        return False
    return not have_copies or are_copied_plainly(parts)


@functools.cache
def is_known_layer(kind: type) -> bool:
    """Whether all that a class is made of is the project's, or is one of torch's or torchvision's that only compute."""
    return all(
        base in (object, torch.nn.Module)
        or base.__module__.startswith(("torch.nn.modules.", "torchvision.models.", "torchvision.ops."))
        and not base.__module__.startswith("torchvision.models.detection")
        and not issubclass(base, (torch.nn.SyncBatchNorm, torch.nn.modules.lazy.LazyModuleMixin))
        or not is_of_library(base.__module__)
        for base in kind.__mro__
    )


def renews_rows(part: torch.nn.Module) -> bool:
    """Whether a table of vectors changes those that it looks up: with max_norm."""
    tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return isinstance(part, tables) and part.max_norm is not None


@contextlib.contextmanager
def replaced_parameters(
    parts: Sequence[torch.nn.Module],
    holders: Sequence[torch.nn.Module],
    stand_ins: Mapping[int, torch.Tensor],
) -> Iterator[None]:
    """A block in which the module itself computes with other tensors in place of parameters, by their id().

    Its running averages are its own, also while rank 0's are newer: it only writes them, and rank 0's come later.
    """
    computing = [part for part in parts if part._parameters] if stand_ins else []
    averaging = [part for part in holders if type(part._buffers) is GuardedBuffers]
    parameters, buffers = [part._parameters for part in computing], [part._buffers for part in averaging]
    for part in computing:
        vars(part)["_parameters"] = {
            name: parameter if parameter is None else stand_ins.get(id(parameter), parameter)
            for name, parameter in part._parameters.items()
        }
    for part in averaging:
        vars(part)["_buffers"] = held_buffers(part)
    try:
        yield
    finally:
        for part, own in zip(computing, parameters, strict=True):
            vars(part)["_parameters"] = own
        for part, guarded in zip(averaging, buffers, strict=True):
            vars(part)["_buffers"] = guarded


def are_copied_plainly(parts: Sequence[torch.nn.Module]) -> bool:
    """Whether all parts are nothing but their attributes, and none is compiled."""
    return all(map(is_copied_plainly, set(map(type, parts)))) and not any(map(is_compiled, parts))


@functools.cache
def is_copied_plainly(kind: Any) -> bool:
    """Whether a module of this class is nothing but its attributes, and setting one does nothing else."""
    usual = torch.nn.Module
    return (
        kind._replicate_for_data_parallel is usual._replicate_for_data_parallel
        and kind.__setattr__ is usual.__setattr__
        and kind.__new__ is usual.__new__
        and not issubclass(kind, torch.jit.ScriptModule)
    )


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
        # A state that the script has set itself: no seed, which would be for all.
        self.placed = torch.empty(0)
        self.first: tuple[Any, torch.Tensor] = (
            None,
            torch.empty(0),
        )  # where a generator with some seed begins

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
        if self.first[0] != (generator.device, seed):
            made = torch.Generator(generator.device).manual_seed(seed).get_state()
            self.first = (generator.device, seed), made
        fresh = self.first[1]
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


def same_state(state: Any, other: Any) -> bool:
    """Whether two states of a random stream are the same."""
    return torch.equal(state, other) if isinstance(state, torch.Tensor) else bool(state == other)


def stream_marks(names: "Collection[str]" = ("random", "torch", "cuda", "numpy")) -> dict[str, Any]:
    """Something of each random stream that is another as soon as something is drawn; of torch's, the state itself.

    Python and numpy take 250 microseconds to tell their states, which is more than a small layer takes.
    """
    marks: dict[str, Any] = {}
    if "random" in names:
        marks["random"] = mark_of_random(vars(random)["_inst"])
    if "torch" in names:
        marks["torch"] = torch.get_rng_state()
    if "cuda" in names and torch.cuda.is_initialized():
        marks["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in names and "numpy" in sys.modules:
        marks["numpy"] = mark_of_numpy(sys.modules["numpy"].random.mtrand._rand)
    return marks


def device_mark(device: torch.device) -> dict[str, Any]:
    """stream_marks() of a device's own stream alone."""
    return stream_marks(("cuda" if device.type == "cuda" else "torch",))


def mark_of_random(generator: Any) -> Any:
    """What a random.Random's draw changes: its memory, where that holds the state, and the number gauss() keeps."""
    if not bytes_show_draws("random"):
        return generator.getstate()
    return bytes_of_object(generator), generator.gauss_next


def mark_of_numpy(generator: Any) -> Any:
    """What a draw of numpy's RandomState changes: its memory (with the number randn() keeps), its bit generator's."""
    if not bytes_show_draws("numpy"):
        name, keys, *rest = generator.get_state()
        return name, keys.tobytes(), *rest
    return bytes_of_object(generator), bytes_of_object(generator._bit_generator)


def bytes_of_object(thing: Any) -> bytes:
    """What an object of C consists of, without the count of references to it."""
    head = object.__basicsize__
    return ctypes.string_at(id(thing) + head, type(thing).__basicsize__ - head)


@functools.cache
def bytes_show_draws(name: str) -> bool:
    """Whether a generator's own memory holds its state, so that it is another after each draw: tried on one."""
    try:
        if name == "random":
            generator = random.Random(1)
            looks = [bytes_of_object(generator)]
            for _ in range(3):
                generator.random()
                looks.append(bytes_of_object(generator))
        else:
            other = sys.modules["numpy"].random.RandomState(1)
            looks = [bytes_of_object(other) + bytes_of_object(other._bit_generator)]
            for _ in range(3):
                other.standard_normal()
                looks.append(bytes_of_object(other) + bytes_of_object(other._bit_generator))
    except Exception:
        return False
    return len(set(looks)) == len(looks)


Kind = TypeVar("Kind", bound=type)


@dataclass(frozen=True)
class ReplicaReport:
    """What a rank reports to the others about its forward pass."""

    outputs: tuple[Any, ...]  # one described output; none without rows, or after an error
    error: ExceptionWrapper | None = None
    text: str = ""
    streams: dict[str, Any] | None = None
    changed_buffers: bool = False
    changed_parameters: bool = False
    drew_on_host: bool = False  # from streams that all replicas share
    moved_parameters: bool = False  # given other data, or hooks
    buffers_are_held: bool = False  # by somebody who would not see what comes to them later
    sums_at_once: bool = False  # gradients are looked at on their way into .grad
    sums_set_out: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of a replica's work on this rank."""

    outputs: tuple[Any, ...]
    error: ExceptionWrapper | None
    text: str
    drawn: dict[str, Any]  # the random streams that were drawn from

    def report(self, left_out: Collection[str] = (), **news: bool) -> ReplicaReport:
        """What the others get; of random streams, where rank 0's are now."""
        drawn = self.drawn.keys() - left_out if own_rank() == 0 else ()
        return ReplicaReport(
            self.outputs, self.error, self.text, random_streams(drawn) if drawn else {}, **news
        )


def raised_behind_helpers() -> Any:
    """sys.exc_info(), with the traceback from the first frame on that is not torch's nor one of those of `attempt`."""
    kind, error, trace = sys.exc_info()
    inner = trace.tb_next.tb_next if trace is not None and trace.tb_next is not None else None
    torchs = os.path.dirname(torch.__file__) + os.sep
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(torchs):
        inner = inner.tb_next
    return kind, error, inner or trace


def called_data_parallel(kind: Kind) -> Kind:
    """Give a class the name that was printed, saved and compared before."""
    kind.__name__ = "DataParallel"
    return kind


@called_data_parallel
class ReplicaDDP(DistributedDataParallel):
    """nn.DataParallel over the ranks: rank r runs replica r. GraphDDP and ExactDDP say how gradients are summed.

    With whole_outputs=True every rank gets all outputs at once, also large ones.
    With pure_forward=True nothing is done for a forward that leaves traces: the module itself runs, as in a port by
    hand. It is for modules whose forward sets no attribute, changes no buffer but running averages, prints nothing,
    draws nothing on the host, and does not ask which parameters there are; dp2ddp convert proves that.
    It is a DistributedDataParallel by name only: for isinstance, .module, and the keys of the state dict.
    """

    in_turn = False  # whether the ranks run the module one after another
    # One a process: a device has one default generator, whichever model draws from it.
    device_stream = DeviceStream()
    changes_behind = False  # whether layers may have run again since the buffers came

    def __init__(
        self, module: torch.nn.Module, dim: int = 0, whole_outputs: bool = False, pure_forward: bool = False
    ) -> None:
        torch.nn.Module.__init__(self)
        self.module = module
        self.dim = dim
        self.whole_outputs = whole_outputs
        self.pure_forward = pure_forward
        self.trained = False
        self.far_buffers = BuffersOfRankZero()
        self.step_exchange = StepExchange()
        self.compiler: Callable[[torch.nn.Module], torch.nn.Module] | None = None

    def compile(self, *args: Any, **options: Any) -> None:
        """Compile what each rank runs of the module; what the ranks say to each other is in no graph."""
        self.compiler = compiler_with(options)

    @uncompiled
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if world_size() > 1:
            vars(self)["looked_up"] = contents_of(self.module)
            try:
                return self.forward_on_ranks(inputs, kwargs)
            finally:
                del vars(self)["looked_up"]
        alone = split_arguments(inputs, kwargs, 0, 1, lambda tensor: (1, tensor.to(self.device)))
        plain = self.compiler is None or is_compiled(self.module)
        module = self.module if plain else self.compiler(self.module)  # type: ignore[misc]
        return module(*alone.inputs, **alone.kwargs)

    def forward_on_ranks(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run this rank's replica, report to the others how it went, and join the outputs."""
        self.bring_buffers()
        link, copies, part = self.enter(inputs, kwargs)
        tensors: list[torch.Tensor] = []
        report = self.run_replica(part, copies, tensors)
        kind = self.is_training, torch.is_grad_enabled()
        messages = self.step_exchange.exchange(kind, report, tensors, (inputs, kwargs))
        replica_is_done(link)
        reports = [message.value for message in messages]
        self.follow(reports)
        link = self.bring_zero_gradients(link)
        ranks = [rank for rank, report in enumerate(reports) if report.outputs]
        return gather_outputs(
            [reports[rank].outputs[0] for rank in ranks],
            lambda metas: self.join_tensors(
                dict(zip(ranks, metas, strict=True)), tensors, link, self.dim, messages
            ),
        )

    @property
    def contents(self) -> Contents:
        """What the module is made of."""
        contents: Contents | None = vars(self).get("looked_up")
        return contents_of(self.module) if contents is None else contents

    def enter(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor], Part]:
        """From what all ranks hold to this rank's: the link, copies of parameters, its part of the inputs."""
        world, grad = world_size(), torch.is_grad_enabled()
        cut = {id(t): t for t in tensors_in((inputs, kwargs)) if t.requires_grad and grad}
        sparse = self.sparse_parameters()
        layouts: list[Layout] = [p.shape for p in sparse]
        layouts += [(self.dim, rank_sizes(tensor, world, self.dim)) for tensor in cut.values()]
        if layouts:
            link, *own = ScatterToRanks.apply(tuple(layouts), *sparse, *cut.values())
        else:
            is_first = grad and not self.parameters_in_graph()
            link, own = torch.zeros((), device=self.device, requires_grad=is_first), []
        link, stand_ins = self.copy_parameters(link.to(self.device), sparse)
        stand_ins |= {id(p): copy for p, copy in zip(sparse, own, strict=False)}
        chunks = dict(zip(cut, own[len(sparse) :], strict=True))
        part = split_arguments(inputs, kwargs, own_rank(), world, lambda tensor: self.take(tensor, chunks))
        return link, stand_ins, part

    def take(self, tensor: torch.Tensor, chunks: dict[int, torch.Tensor]) -> tuple[int, torch.Tensor]:
        """The number of chunks of an input, and this rank's, on its device."""
        world = world_size()
        count = len(chunk_sizes(tensor, world, self.dim))
        if id(tensor) in chunks:
            return count, self.scale_input_gradient(chunks[id(tensor)].to(self.device))
        own = own_numbers(tensor.detach(), rank_sizes(tensor, world, self.dim), self.dim)
        return count, own.to(self.device, copy=True)

    def has_rows(self, part: Part) -> bool:
        """Whether there is anything to do for this rank's replica."""
        return own_rank() < part.replicas

    def host_streams(self, streams: dict[str, Any]) -> dict[str, Any]:
        """Those of the random streams that all replicas draw from: all but the one of the module's device."""
        own = "cuda" if self.device.type == "cuda" else "torch"
        return {name: state for name, state in streams.items() if name != own}

    def run_replica(
        self, part: Part, copies: dict[int, torch.Tensor], tensors: list[torch.Tensor]
    ) -> ReplicaReport:
        """Call a replica with its part of the inputs. The tensors of its output go to the list."""
        if not self.has_rows(part):
            return ReplicaReport(())
        if self.runs_itself(copies):
            return self.run_module(part, copies, tensors)
        return self.run(lambda: describe_output(self.replica(copies)(*part.inputs, **part.kwargs), tensors))

    def runs_itself(self, copies: dict[int, torch.Tensor]) -> bool:
        """Whether no replica is needed: nothing that forward does would stay behind in the module."""
        if not self.pure_forward or self.compiler is not None:
            return False
        first_training = self.is_training and not self.trained  # in which layers may look at the data
        return not first_training and are_plain_layers(self.contents.parts, bool(copies))

    def run_module(
        self, part: Part, copies: dict[int, torch.Tensor], tensors: list[torch.Tensor]
    ) -> ReplicaReport:
        """Call the module itself with its part of the inputs. The tensors of its output go to the list."""
        contents = self.contents
        are_held = are_held_elsewhere(contents.holders)
        with replaced_parameters(contents.parts, contents.holders, copies):
            outcome = self.attempt(
                lambda: describe_output(self.module(*part.inputs, **part.kwargs), tensors),
                device_mark(self.device),
            )
        return outcome.report(
            changed_buffers=contents.is_training,
            buffers_are_held=are_held,
            **self.news_of_sums(),
        )

    def replica(self, copies: dict[int, torch.Tensor]) -> torch.nn.Module:
        """What this rank runs of the module."""
        replica = replica_of(self.module, self.stand_ins(copies), self.contents.parts)
        plain = self.compiler is None or is_compiled(replica)
        return replica if plain else self.compiler(replica)  # type: ignore[misc]

    def run(self, call: Callable[[], Any]) -> ReplicaReport:
        """Do a replica's work, which gives its described output."""
        contents = self.contents
        are_held = are_held_elsewhere(contents.holders)  # before the graph holds them
        versions = contents.versions()
        outcome = self.attempt(call, stream_marks())
        on_host = self.host_streams(outcome.drawn)
        buffers, parameters = (now != then for now, then in zip(contents.versions(), versions, strict=True))
        return outcome.report(
            on_host if self.in_turn else (),
            changed_buffers=buffers or contents.is_training,
            changed_parameters=parameters,
            drew_on_host=bool(on_host) and not self.in_turn,
            buffers_are_held=are_held,
            **self.news_of_sums(),
        )

    def attempt(self, call: Callable[[], Any], before: dict[str, Any]) -> "Outcome":
        """Do a replica's work, and see what came of it; `before` marks the random streams that it may draw from."""
        outputs: tuple[Any, ...] = ()
        error = None
        with inside_replica(), self.replica_streams(before) as text:
            try:
                outputs = (call(),)
            except Exception:  # it is raised on every rank, in follow
                error = ExceptionWrapper(
                    raised_behind_helpers(), where=f"in replica {own_rank()} on device {self.device}"
                )
            drawn = changed_streams(stream_marks(before), before)
        return Outcome(outputs, error, text.getvalue(), drawn)

    @contextlib.contextmanager
    def replica_streams(self, before: dict[str, Any]) -> Iterator[io.StringIO]:
        """On ranks > 0, draw from the device's own stream, then go on with the script's; keep the print."""
        text = io.StringIO()
        if own_rank() == 0:
            yield text
            return
        with contextlib.redirect_stdout(text), self.device_stream.drawn_from(default_generator(self.device)):
            yield text
        shared = self.host_streams(before) if self.in_turn else {}
        kept = ("torch", "cuda")  # of the others, marks are no states
        set_random_streams({name: before[name] for name in before if name in kept and name not in shared})

    def stand_ins(self, copies: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """What a replica computes with: as with DataParallel, only replica 0 can change the module's own.

        Except that parameters are copied in the first training pass only, in which layers may look at the
        data to initialise themselves. To copy them at every step would cost more than it is worth. And running
        averages of other ranks are nobody's: rank 0's come when somebody looks at them.
        """
        if own_rank() == 0:
            return copies
        contents = self.contents
        if contents.is_training and not self.trained:
            copies = {id(p): copies.get(id(p), p).clone() for p in contents.parameters}
        far = [part for part in contents.holders if not reads_no_buffer(part)]
        return {**copies, **{id(tensor): tensor.clone() for tensor in tensors_of(map(held_buffers, far))}}

    def follow(self, reports: Sequence[ReplicaReport]) -> None:
        """Let every rank go on as rank 0 does: errors, printed lines, random streams, buffers."""
        if own_rank() == 0:
            for report in reports[1:]:
                sys.stdout.write(report.text)
        elif reports[0].streams:
            set_random_streams(reports[0].streams)
        if any(report.drew_on_host for report in reports):
            streams = self.host_streams(exchange(random_streams())[0])
            set_random_streams(streams)
        if reports[0].changed_buffers:
            self.leave_buffers(any(report.buffers_are_held for report in reports))
        for report in reports:
            if report.error is not None:
                report.error.reraise()
        if len(reports) > 1 and any(report.drew_on_host for report in reports) and reports[1].outputs:
            raise RuntimeError(
                "The module draws random numbers on the host in its forward pass (random, numpy, or torch on the "
                "CPU). Let the ranks draw one after another: take dp2ddp.helpers.InTurnDDP."
            )
        first_training = self.is_training and not self.trained
        if first_training or any(report.changed_parameters for report in reports):
            copy_from_rank(0, self.contents.parameters)
        self.trained = (self.trained or first_training) and not self.in_turn

    def leave_buffers(self, are_held: bool) -> None:
        """Rank 0 has changed buffers. The others get them now, if somebody would not ask for them."""
        self.far_buffers.leave(self.contents.holders)
        if are_held or "looked_up" not in vars(self) or self.contents.is_compiled or self.compiler:
            self.far_buffers.arrive()
            self.changes_behind = self.is_training and torch.is_grad_enabled()

    def bring_buffers(self) -> None:
        """Let all ranks have rank 0's buffers, if this forward pass reads any.

        Also those that came at once: a checkpoint runs layers again in backward, and they may have changed since.
        """
        parts = self.contents.holders
        if self.changes_behind:
            self.far_buffers.leave(parts)
            self.far_buffers.arrive()
            self.changes_behind = False
        own = self.far_buffers.arrive
        kinds: Any = set(map(type, self.contents.parts))
        if any(map(names_averages, kinds)):
            own()
        for part in parts:
            table = part._buffers
            if type(table) is GuardedBuffers and (table.arrive != own or not reads_no_buffer(part)):
                table.arrive()

    def join_tensors(
        self,
        metas: dict[int, TensorMeta],
        tensors: list[torch.Tensor],
        link: torch.Tensor,
        dim: int,
        messages: Sequence[RankMessage] = (),
    ) -> torch.Tensor:
        """One tensor from the ranks' tensors along a dimension, by the rules of torch.nn.parallel.gather."""
        shapes = dict(zip(metas, joinable_shapes(list(metas.values()), dim), strict=True))
        sizes = tuple(shapes[rank][dim] if rank in shapes else 0 for rank in range(world_size()))
        come = self.received_tensors(metas, shapes, messages)
        if own_rank() in metas:
            own = tensors[metas[own_rank()].place].view(shapes[own_rank()])
        else:
            some = next(iter(shapes))
            own = link.new_empty(shapes[some], dtype=metas[some].dtype).narrow(dim, 0, 0)
        if not (torch.is_grad_enabled() and any(meta.needs_gradient for meta in metas.values())):
            whole = torch.cat(come, dim) if come else join_parts(own, sizes, dim)
        else:
            with torch.no_grad():
                whole = torch.cat(come, dim) if come else join_parts(own, sizes, dim)
            whole = RowsIntoWhole.apply((dim, sizes), self.output_gradient_factor, [whole], link, own)
        whole = plain(whole) if self.whole_outputs else whole
        self.watch(whole)
        if all(meta.channels_last for meta in metas.values()) and not is_parted(whole):
            return whole.contiguous(memory_format=torch.channels_last)
        return whole

    def received_tensors(
        self, metas: dict[int, TensorMeta], shapes: dict[int, torch.Size], messages: Sequence[RankMessage]
    ) -> list[torch.Tensor]:
        """The ranks' tensors, if all of them came with the reports."""
        come = {rank: messages[rank].tensors for rank in metas if messages}
        if not messages or any(tensors is None for tensors in come.values()):
            return []
        return [come[rank][metas[rank].place].view(shapes[rank]) for rank in metas]  # type: ignore[index]

    def scale_input_gradient(self, chunk: torch.Tensor) -> torch.Tensor:
        """Rows of an input, where their gradient goes out to the whole input."""
        return chunk

    @property
    def output_gradient_factor(self) -> float:
        """What gradients of the whole are multiplied by where they enter the own rows."""
        return 1.0

    def watch(self, whole: torch.Tensor) -> None:
        """Called with each tensor that comes out of the forward pass, before the script has it."""

    def tensor_of(
        self, rank: int, meta: TensorMeta, tensors: list[torch.Tensor], link: torch.Tensor
    ) -> torch.Tensor:
        """One rank's tensor, on every rank, with the dimensions in the same order of memory."""
        flat = TensorMeta(0, torch.Size([meta.shape.numel()]), meta.dtype, meta.needs_gradient)
        own = [tensors[meta.place].permute(meta.order).reshape(-1)] if rank == own_rank() else []
        whole = plain(self.join_tensors({rank: flat}, own, link, 0))
        return whole.view([meta.shape[place] for place in meta.order]).permute(
            sorted(range(len(meta.order)), key=meta.order.__getitem__)
        )

    def parameters_in_graph(self) -> list[torch.nn.Parameter]:
        """The parameters whose gradients are added up inside the autograd graph."""
        return []

    def sparse_parameters(self) -> list[torch.nn.Parameter]:
        """Those of them whose gradients hold only the rows that were looked up."""
        return []

    def copy_parameters(
        self, link: torch.Tensor, sparse: Sequence[torch.nn.Parameter]
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """The link, and copies for this rank's replica of the others of them, by the parameters' id()."""
        return link, {}

    def news_of_sums(self) -> dict[str, Any]:
        """What the others have to know of how this rank's gradients are summed."""
        return {}

    def bring_zero_gradients(self, link: torch.Tensor) -> torch.Tensor:
        """The link that the joined outputs get."""
        return link

    def trainable(self) -> list[torch.nn.Parameter]:
        """The parameters that this forward pass can give a gradient."""
        return self.contents.trainable if torch.is_grad_enabled() else []

    @property
    def is_training(self) -> bool:
        """Whether any part of the module is in training mode."""
        return self.contents.is_training

    @property
    def device(self) -> torch.device:
        """Where the module is."""
        return self.contents.device

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients are whole after every backward pass, as DataParallel's are."""
        yield

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved as a whole it is a DataParallel around the module, as it was before: any script can load that."""
        wrapper = torch.nn.DataParallel(self.module, dim=self.dim)
        own = ("dim", "whole_outputs", "pure_forward", "trained", "far_buffers", "changes_behind", "step_exchange",
               "compiler", "reducing", "missing", "careful", "scales_rows", "zeros_for_all", "looked_up",
               "sums", "crossing")  # fmt: skip
        vars(wrapper).update({name: value for name, value in vars(self).items() if name not in own})
        return copyreg._reconstructor, (torch.nn.DataParallel, object, None), vars(wrapper)  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: dict[int, Any]) -> "ReplicaDDP":
        twin = memo[id(self)] = type(self).__new__(type(self))
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return twin

    def __copy__(self) -> "ReplicaDDP":
        twin = type(self).__new__(type(self))
        twin.__setstate__(self.__getstate__())
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "far_buffers": BuffersOfRankZero(), "step_exchange": StepExchange()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        torch.nn.Module.__setstate__(self, state)


@called_data_parallel
class GraphDDP(ReplicaDDP):
    """nn.DataParallel over the ranks; gradients are added up inside the autograd graph, as DataParallel does.

    Right for whatever autograd can do: several backward passes, autograd.grad, gradients of gradients, layers
    that come or thaw later.
    """

    def __init__(
        self, module: torch.nn.Module, dim: int = 0, whole_outputs: bool = False, pure_forward: bool = False
    ) -> None:
        super().__init__(module, dim, whole_outputs, pure_forward)
        self.sums = SumsOfModel()
        self.crossing = Crossing(self.sums)

    def parameters_in_graph(self) -> list[torch.nn.Parameter]:
        return self.trainable()

    def sparse_parameters(self) -> list[torch.nn.Parameter]:
        if not self.trainable():
            return []
        layers = [
            part
            for part in self.contents.parts
            if vars(part).get("sparse", getattr(type(part), "sparse", False)) is True
        ]
        weights = {p for layer in layers for p in layer._parameters.values() if p is not None}
        return [p for p in self.trainable() if p in weights]

    def copy_parameters(
        self, link: torch.Tensor, sparse: Sequence[torch.nn.Parameter]
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        apart = {*sparse}
        dense = [p for p in self.parameters_in_graph() if p not in apart]
        LateSums.forget()
        self.sums.met_others |= has_hooks(dense)
        self.crossing = Crossing(self.sums)
        link, copies = copies_for_replica(self.crossing, link, dense)
        return link, {id(p): copy for p, copy in zip(dense, copies, strict=True)}

    def news_of_sums(self) -> dict[str, Any]:
        return {"sums_at_once": self.sums.met_others, "sums_set_out": self.sums.may_set_out}

    def follow(self, reports: Sequence[ReplicaReport]) -> None:
        at_once = any(report.sums_at_once for report in reports)
        self.crossing.settle(at_once, all(report.sums_set_out for report in reports))
        super().follow(reports)

    def __getstate__(self) -> dict[str, Any]:
        sums = SumsOfModel()
        return {**super().__getstate__(), "sums": sums, "crossing": Crossing(sums)}


def scatter_to_ranks(inputs: Any, target_gpus: Any, dim: int = 0) -> Any:
    """torch.nn.parallel.scatter: the parts of a value, one for each device, all of them on each rank."""
    count = len(target_gpus)
    if isinstance(inputs, torch.Tensor):
        return scatter_tensor_to_ranks(target_gpus, None, dim, inputs)
    if not isinstance(inputs, (tuple, list, dict)) or not inputs:
        return [inputs for _ in range(count)]
    kind: Any = type(inputs)
    items = inputs.items() if isinstance(inputs, dict) else inputs
    rows = zip(*(scatter_to_ranks(item, target_gpus, dim) for item in items))  # noqa: B905 (the fewest count)
    return [kind(*row) if hasattr(kind, "_fields") else kind(row) for row in rows]


def scatter_tensor_to_ranks(
    target_gpus: Any, chunk_sizes: "Sequence[int] | None", dim: int, tensor: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """torch.nn.parallel._functions.Scatter.apply: a tensor in chunks, or in parts of given sizes."""
    parts = (
        tensor.chunk(len(target_gpus), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    )
    return tuple(part.to(rank_device()) for part in parts)


def replicate_on_ranks(network: torch.nn.Module, devices: Any, detach: bool = False) -> list[torch.nn.Module]:
    """torch.nn.parallel.replicate: a replica for each device. Replica r runs on rank r alone."""
    trained = [p for p in network.parameters() if p.requires_grad and torch.is_grad_enabled() and not detach]
    link, copies = copies_on_ranks(trained)
    replicas = []
    for number in range(len(devices)):
        stand_ins: dict[torch.Tensor, torch.Tensor] = {p: p for p in network.parameters()}
        stand_ins.update(zip(trained, copies, strict=True))
        buffers = {buffer: buffer for buffer in network.buffers()}
        if number == own_rank() > 0:  # only replica 0 can change the module's own
            buffers = {buffer: buffer.clone() for buffer in buffers}
            if network.training:
                stand_ins = {tensor: copy.clone() for tensor, copy in stand_ins.items()}
        replica = replica_of(network, {id(own): copy for own, copy in {**stand_ins, **buffers}.items()})
        vars(replica).update(replica_number=number, replica_link=link, replica_origin=network)
        if number != own_rank() and world_size() > 1 and [*stand_ins, *buffers]:
            vars(replica)["forward"] = functools.partial(refuse, number)
        replicas.append(replica)
    return replicas


def refuse(number: int, *inputs: Any, **kwargs: Any) -> None:
    """The forward of a replica that belongs to another rank."""
    raise RuntimeError(f"replica {number} runs on rank {number}: call it by parallel_apply_on_ranks")


def copies_on_ranks(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """A copy of each tensor for this rank's replica, whose gradients add up over the ranks; and their link."""
    if not tensors or world_size() == 1:
        return torch.zeros(()), list(tensors)
    link, *copies = ScatterToRanks.apply(tuple(None for _ in tensors), *tensors)
    return link, copies


def parallel_apply_on_ranks(
    modules: Sequence[Any], inputs: Sequence[Any], kwargs_tup: Any = None, devices: Any = None
) -> list[Any]:
    """torch.nn.parallel.parallel_apply: replica r runs on rank r, and every rank gets the outputs of all."""
    calls, keywords = as_calls(modules, inputs, kwargs_tup)
    if world_size() == 1:
        return [module(*part, **each) for module, part, each in zip(modules, calls, keywords, strict=True)]
    return RunByHand(modules).outputs_of(calls, keywords)


def as_calls(
    modules: Sequence[Any], inputs: Sequence[Any], kwargs_tup: Any
) -> tuple[list[Any], list[dict[str, Any]]]:
    """The arguments of each module, by position and by name."""
    calls = [part if isinstance(part, (list, tuple)) else (part,) for part in inputs]
    keywords = [dict(each or {}) for each in kwargs_tup or [{} for _ in modules]]
    assert len(modules) == len(calls) == len(keywords), "a part of the inputs for each module"
    return calls, keywords


class RunByHand:
    """One call of parallel_apply, on this rank's replica."""

    def __init__(self, modules: Sequence[Any]) -> None:
        self.links = {id(link): link for module in modules for link in links_of(module)}
        origin = vars(modules[0]).get("replica_origin")
        self.wrapper = GraphDDP(torch.nn.Module() if origin is None else origin)
        self.wrapper.trained = True  # replicas have copies of their own
        self.modules = modules
        self.numbers = [vars(module).get("replica_number", place) for place, module in enumerate(modules)]
        if max(self.numbers) >= world_size():
            raise RuntimeError(
                f"{max(self.numbers) + 1} replicas on {world_size()} ranks: start one rank for each device"
            )
        self.link = torch.zeros(())

    def outputs_of(self, inputs: Sequence[Any], kwargs: Sequence[Any]) -> list[Any]:
        """The outputs of all replicas, on every rank."""
        wanting = {
            id(t): t for t in tensors_in((inputs, kwargs)) if t.requires_grad and torch.is_grad_enabled()
        }
        self.link, copies = copies_on_ranks(list(wanting.values()))
        for more in self.links.values():
            self.link = self.link.to(more.device) + more
        stand_ins = dict(zip(wanting, copies, strict=True))
        tensors: list[torch.Tensor] = []
        report = ReplicaReport(())
        if own_rank() in self.numbers:
            place = self.numbers.index(own_rank())
            part, keywords = map_tensors(
                (inputs[place], kwargs[place]), lambda tensor: stand_ins.get(id(tensor), tensor)
            )
            report = self.wrapper.run(lambda: describe_part(self.modules[place](*part, **keywords), tensors))
        reports = self.exchange_reports(report)
        self.wrapper.follow(reports)
        self.follow_kept()
        link = self.link.to(self.wrapper.device)
        return [
            from_part(
                reports[number].outputs[0],
                functools.partial(self.wrapper.tensor_of, number, tensors=tensors, link=link),
            )
            for number in self.numbers
        ]

    def exchange_reports(self, report: ReplicaReport) -> list[ReplicaReport]:
        """How the forward passes of all replicas went."""
        return exchange(report)

    def follow_kept(self) -> None:
        """Tensors that were broadcast are what replica 0 made of them."""
        for link in self.links.values():
            copy_from_rank(0, getattr(link, "kept", []))


def links_of(module: Any) -> Iterator[torch.Tensor]:
    """What ties a replica, or a function with broadcast tensors among its arguments, to the other ranks."""
    if isinstance(module, functools.partial):
        for tensor in tensors_in((module.args, module.keywords)):
            if hasattr(tensor, "replica_link"):
                yield tensor.replica_link
    elif "replica_link" in vars(module):
        yield module.replica_link
    elif isinstance(module, torch.nn.Module) and any(p.requires_grad for p in module.parameters()):
        raise RuntimeError("parallel_apply_on_ranks is given a module that replicate_on_ranks did not make")


def describe_part(output: Any, tensors: list[torch.Tensor]) -> Any:
    """One replica's output as the other ranks may see it; its tensors go to the list."""
    if isinstance(output, torch.Tensor):
        tensors.append(output)
        return meta_of(output, len(tensors) - 1)
    if isinstance(output, dict):
        items = tuple(describe_part(item, tensors) for item in output.values())
        return ContainerMeta(type(output), tuple(output), items)
    if isinstance(output, (tuple, list)):
        return ContainerMeta(type(output), (), tuple(describe_part(item, tensors) for item in output))
    return output


def from_part(described: Any, join: Callable[[TensorMeta], torch.Tensor]) -> Any:
    """One replica's described output with tensors in it again."""
    if isinstance(described, TensorMeta):
        return join(described)
    if not isinstance(described, ContainerMeta):
        return described
    items = [from_part(item, join) for item in described.items]
    if issubclass(described.kind, dict):
        return described.kind(zip(described.keys, items, strict=True))
    kind: Any = described.kind
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def gather_from_ranks(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """torch.nn.parallel.gather, of outputs that every rank has already."""
    tensors: list[torch.Tensor] = []

    def join(metas: Sequence[TensorMeta]) -> torch.Tensor:
        shapes = joinable_shapes(metas, dim)
        parts = [tensors[meta.place].view(shape) for meta, shape in zip(metas, shapes, strict=True)]
        return torch.cat(parts, dim)

    return gather_outputs([describe_output(output, tensors) for output in outputs], join)


def rank_device() -> torch.device:
    """The device of this rank."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
