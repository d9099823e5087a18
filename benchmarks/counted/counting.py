"""What a rank does in each of its optimizer steps: time, memory, and with COUNTS_ALL calls and bytes.

A step ends where the optimizer that stepped first has stepped again. Nothing of the script is changed; what is
counted is taken where it cannot be missed: exchanges at the process group, which every function of torch.distributed
calls (the reducer calls it from C++, so gradients that it sums are not among them), moves and synchronisations at
the virtual devices, which see every function of every tensor.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import resource
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

WARM = 3  # steps that are left out of everything


def begin() -> None:
    """Count in this process, whose counts go to the folder COUNTS when it has done COUNTS_STEPS steps, or ends."""
    counts = Counts(Path(os.environ["COUNTS"]), int(os.environ["COUNTS_STEPS"]))
    register_optimizer_step_post_hook(counts.stepped)
    if "COUNTS_ALL" in os.environ:
        follow_exchanges(counts.now)
        follow_devices(counts.now)
    if os.environ.get("COUNTS_PROFILE") and os.environ.get("RANK", "0") == "0":
        counts.profile = os.environ["COUNTS_PROFILE"]
    atexit.register(counts.write)


class Counts:
    """One process's steps; `now` is what has been counted since the last one."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder = folder
        self.steps = steps
        self.process = os.getpid()
        self.first: object = None
        self.times: list[float] = []
        self.cpu: list[float] = []
        self.children: list[float] = []
        self.now: Counter[str] = Counter()
        self.counts: list[dict[str, int]] = []
        self.sent = 0
        self.left = 0.0
        self.left_cpu = 0.0
        self.resident = memory("VmRSS")
        self.peak = 0
        self.device = 0
        self.profile = ""
        self.profiler: Any = None

    def stepped(self, optimizer: object, *ignored: object) -> None:
        """An optimizer has stepped."""
        if os.getpid() != self.process:
            return
        self.first = self.first or optimizer
        if optimizer is not self.first:
            return
        if self.left:
            self.times.append(time.perf_counter() - self.left)
            self.cpu.append(time.process_time() - self.left_cpu)
        self.count_wire()
        self.counts.append(dict(self.now))
        step = len(self.counts)
        if step in (WARM, self.steps):
            self.children.append(cpu_of_children())
        if step == WARM:
            forget_peak()
            if self.profile:
                import cProfile

                self.profiler = cProfile.Profile()
        if step == self.steps:
            self.peak, self.device = memory("VmHWM"), device_peak()
            if self.profiler:
                self.profiler.disable()
                self.profiler.dump_stats(self.profile)
        self.now.clear()
        if step == WARM and self.profiler:
            self.profiler.enable()
        self.left, self.left_cpu = time.perf_counter(), time.process_time()

    def count_wire(self) -> None:
        """Add what has gone out since the last step, if everything is to be counted."""
        if "COUNTS_ALL" in os.environ:
            sent = bytes_sent()
            self.now["sent"], self.sent = sent - self.sent, sent

    def write(self) -> None:
        """Leave what was counted in the folder, under the rank's number."""
        if os.getpid() != self.process:
            return
        children = (self.children[-1] - self.children[0]) / (self.steps - WARM) if self.children[1:] else 0.0
        found = {
            "times": self.times[WARM - 1 :],
            "cpu": self.cpu[WARM - 1 :],
            "children": children,
            "counts": self.counts[WARM:],
            "resident": self.resident,
            "peak": self.peak or memory("VmHWM"),
            "device": self.device or device_peak(),
        }
        place = self.folder / f"rank{os.environ.get('COUNTS_RANK', '0')}.json"
        place.write_text(json.dumps(found), encoding="utf-8")
        let_reducers_go()


def let_reducers_go() -> None:
    """Take the reducers of all live DistributedDataParallel objects away, at the end of the process.

    One that outlives the interpreter aborts it now and then over gloo (docs/semantics.md#end-of-process), also
    behind destroy_process_group: a port by hand, or with Accelerate, that has done its work would count as failed.
    How a run ends that fails before is not touched.
    """
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.nn.parallel.DistributedDataParallel):
            vars(thing).pop("reducer", None)
            vars(thing).pop("logger", None)  # it holds the reducer, too


# converted scripts forget RANK when they have joined
os.environ["COUNTS_RANK"] = os.environ.get("RANK", "0")


# ---- memory and processor


def memory(name: str) -> int:
    """VmRSS (resident now) or VmHWM (most that ever was) of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return 1024 * int(line.split()[1])
    return 0


def forget_peak() -> None:
    """Let VmHWM begin anew, at what is resident now (man 5 proc, clear_refs)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # a container that does not allow it: then the peak is that of the whole run
        print("peak memory is that of the whole run, start included", file=sys.stderr)
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(number)


def device_peak() -> int:
    """The most bytes of tensors that this process had on a GPU at once."""
    if not torch.cuda.is_available():
        return 0
    return max(torch.cuda.max_memory_allocated(number) for number in range(torch.cuda.device_count()))


def cpu_of_children() -> float:
    """Processor seconds of all processes that this one has started, and that they have: loader workers."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(map(cpu_of, below(os.getpid())))


def below(parent: int) -> Iterator[int]:
    """The living processes below one."""
    parents = {int(path.name): parent_of(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    reached = {parent}
    while new := {one for one, above in parents.items() if above in reached and one not in reached}:
        reached |= new
        yield from new


def parent_of(path: Path) -> int:
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


def cpu_of(process: int) -> float:
    total = 0
    for task in Path(f"/proc/{process}/task").glob("*/schedstat"):
        try:
            total += int(task.read_text().split()[0])  # nanoseconds on a processor
        except OSError:
            continue
    return total / 1e9


# ---- between ranks

EXCHANGES = """
    _allgather_base _reduce_scatter_base all_gather_single all_gather_single_coalesced all_to_all_single allgather
    allgather_coalesced allgather_into_tensor_coalesced allreduce allreduce_coalesced alltoall alltoall_base barrier
    broadcast gather gather_into_tensor gather_single monitored_barrier recv recv_anysource reduce reduce_scatter
    reduce_scatter_single reduce_scatter_single_coalesced reduce_scatter_tensor_coalesced scatter send
"""


def follow_exchanges(now: Counter[str]) -> None:
    """Count collectives, messages and keys of the store, and what a rank gets or gives in them, in bytes.

    "gradients" is what a hook of DistributedDataParallel's reducer sends: the reducer's own work, done in Python.
    """
    dist: Any = torch.distributed
    group: Any = dist.ProcessGroup
    inside = [0]
    for name in EXCHANGES.split():
        if hasattr(group, name):
            setattr(group, name, counted_exchange(getattr(group, name), now, inside))
    together = dist._broadcast_coalesced

    def _broadcast_coalesced(group: Any, tensors: list[torch.Tensor], *more: Any) -> Any:
        now["collectives"] += 1
        now["exchanged"] += bytes_in(tensors)
        note_place(now)
        return together(group, tensors, *more)

    for module in (dist, dist.distributed_c10d):
        vars(module)["_broadcast_coalesced"] = _broadcast_coalesced
    for kind in (dist.Store, dist.TCPStore, dist.PrefixStore):
        for name in ("set", "get", "add", "wait", "check"):
            if name in vars(kind):
                setattr(kind, name, tallied(getattr(kind, name), "keys", now))
    follow_hooks(inside)


def bytes_sent() -> int:
    """What all TCP connections of this process have sent, whoever opened them (gloo does in C++, torch's store too).

    The kernel's own count: tcpi_bytes_sent in struct tcp_info, linux/tcp.h.
    """
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6):
                    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_SIZE)
                    total += struct.unpack_from("<Q", told, TCP_BYTES_SENT)[0]
        except (OSError, struct.error):  # closed meanwhile, not TCP, or an old kernel
            continue
    return total


TCP_INFO_SIZE, TCP_BYTES_SENT = 256, 200


def follow_hooks(inside: list[int]) -> None:
    """Note while a communication hook of the reducer runs."""
    kind: Any = torch.nn.parallel.DistributedDataParallel
    register = kind.register_comm_hook

    @functools.wraps(register)
    def register_comm_hook(model: Any, state: object, hook: Callable[..., Any]) -> Any:
        @functools.wraps(hook)
        def noted(*args: Any) -> Any:
            inside[0] += 1
            try:
                return hook(*args)
            finally:
                inside[0] -= 1

        return register(model, state, noted)

    kind.register_comm_hook = register_comm_hook


def counted_exchange(method: Callable[..., Any], now: Counter[str], inside: list[int]) -> Callable[..., Any]:
    @functools.wraps(method)
    def counted(group: Any, *args: Any, **kwargs: Any) -> Any:
        if inside[0]:
            now["gradients"] += largest(args)
        else:
            now["collectives"] += 1
            now["exchanged"] += largest(args)
            note_place(now)
        return method(group, *args, **kwargs)

    return counted


def note_place(now: Counter[str]) -> None:
    """Who asked for an exchange: the innermost function that is not torch's."""
    frame = sys._getframe(2)
    while frame.f_back and any(one in frame.f_code.co_filename for one in BETWEEN):
        frame = frame.f_back
    now[f"by {os.path.basename(frame.f_code.co_filename)}:{frame.f_code.co_name}"] += 1


# what lies between who asks and the process group: torch's own functions, and those of virtual devices
BETWEEN = (
    os.path.dirname(torch.__file__),
    os.path.join("dp2ddp", "runtime"),
    os.path.join("dp2ddp", "taps.py"),
    os.path.basename(__file__),
)


def tallied(method: Callable[..., Any], name: str, now: Counter[str]) -> Callable[..., Any]:
    @functools.wraps(method)
    def counted(*args: Any, **kwargs: Any) -> Any:
        now[name] += 1
        return method(*args, **kwargs)

    return counted


def largest(args: tuple[Any, ...]) -> int:
    """What an exchange holds: the larger of what goes in and what comes out (all ranks' parts of a gather)."""
    return max((bytes_in(one) for one in args), default=0)


def bytes_in(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(bytes_in, value)) if isinstance(value, (list, tuple)) else 0


# ---- to devices, and waiting for them

WAITS = frozenset({"item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__"})
WAITS |= {"is_nonzero", "equal", "nonzero"}


def follow_devices(now: Counter[str]) -> None:
    """Count bytes that go to a virtual device, from the host or another one, and calls for which the host waits."""
    from dp2ddp.runtime.virtual_cuda import function_mode, tensor_methods
    from dp2ddp.runtime.virtual_cuda.places import HOST, place_of

    mode: Any = function_mode.VirtualDevices
    see = mode.__torch_function__

    def __torch_function__(
        self: Any, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in WAITS and any(is_there(one) for one in args):
            now["waits"] += 1
            note_wait(now)
        return see(self, func, types, args, kwargs)

    def is_there(value: Any) -> bool:
        """A tensor on a device that is no stand-in for others (their functions come by once more, unwrapped)."""
        plain = type(value) is torch.Tensor or isinstance(value, torch.nn.Parameter)
        return plain and place_of(value) not in (None, HOST)

    move = tensor_methods.move

    def counted_move(tensor: torch.Tensor, place: int | None, *args: Any, **kwargs: Any) -> Any:
        before = place_of(tensor)
        moved = move(tensor, place, *args, **kwargs)
        after = place_of(moved)
        here, there = (HOST if one is None else one for one in (before, after))
        if here != there:
            if there == HOST:
                now["waits"] += 1
                note_wait(now)
            else:
                now["moved" if here == HOST else "between devices"] += bytes_in(moved)
        return moved

    mode.__torch_function__ = __torch_function__
    tensor_methods.move = counted_move


def note_wait(now: Counter[str]) -> None:
    """Who waits for the device: the script (or a library of it), or the helpers that the conversion has."""
    frame: Any = sys._getframe(2)
    while frame and not frame.f_code.co_filename.endswith("ddp_helpers.py"):
        frame = frame.f_back
    if frame:
        now["waits of helpers"] += 1
        now[f"wait in {frame.f_code.co_name}"] += 1
