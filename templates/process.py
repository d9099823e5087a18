"""One process a rank: how the ranks of a run find each other, print as one process, and part again."""

import atexit
import contextlib
import contextvars
import gc
import os
import pickle
import random
import signal
import sys
import textwrap
import threading
import time
import traceback
import uuid
from collections.abc import Container, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any

import torch
import torch.distributed
from torch.distributed.rendezvous import rendezvous

from .writes import watch_writes

# Environment variable with the process id of a rank. Children inherit it (loader workers, pools,
# subprocesses) and see by it that they are not the rank itself.
RANK_PROCESS = "RANK_PROCESS"

# What torchrun says to the processes that it starts.
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
            "ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")  # fmt: skip

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


def forget_launcher() -> None:
    """Let nobody find out that there are ranks; call it right behind join_process_group().

    Scripts and libraries ask for RANK or WORLD_SIZE, or whether torch.distributed is initialized, and then go
    another way than they went with DataParallel: processes set up once more, SyncBatchNorm over all ranks, metrics
    added up over ranks that hold the same numbers. As DataParallel's process did, this one answers no.
    """
    if is_rank_process():
        for name in LAUNCHER:
            os.environ.pop(name, None)
        torch.distributed.is_initialized = has_own_group


def has_own_group() -> bool:
    """torch.distributed.is_initialized(), as the script means it: the process group of the ranks is not its own."""
    return has_process_group() and RANK_PROCESS not in os.environ


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
    vars(ddp).pop("logger", None)  # it holds the reducer, too
