"""torch.cuda and torch.accelerator as a program sees them on a machine with `count` CUDA devices.

One function object for each name: torch._dynamo's tables are keyed by function, and two names for one break them."""

from __future__ import annotations

import itertools
import threading
import time
from abc import ABCMeta
from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import torch

from dp2ddp.runtime.virtual_cuda.places import Machine
from dp2ddp.runtime.virtual_cuda.random_streams import RandomStreams, VirtualGenerator
from dp2ddp.runtime.virtual_cuda.tensor_methods import LEGACY_DTYPES
from dp2ddp.taps import Taps

# An ordinary card's memory, so that scripts which size their batches by it do something sensible.
_TOTAL_MEMORY = 16 * 2**30
_CAPABILITY = (8, 0)  # bfloat16 and tensor cores are there; A100 is the most common target of such checks

# torch.cuda.* name -> function; Any: these take what torch's functions take.
Functions = dict[str, Callable[..., Any]]


def install_cuda_api(taps: Taps, machine: Machine, streams: RandomStreams) -> None:
    """Put torch.cuda and torch.accelerator of a machine with virtual devices in the place of torch's."""
    cuda_streams = CudaStreams(machine)
    functions = _functions(machine, streams, cuda_streams)
    taps.set_all(torch.cuda, functions)
    taps.set(torch.cuda, "_initialized", True)  # else torch.utils.checkpoint keeps no state of the devices
    taps.set(torch.cuda, "default_generators", streams.generators)
    taps.set(torch, "Generator", VirtualGenerator)
    for module in (torch.cuda.random, torch.cuda.memory, torch.cuda.streams):
        taps.set_all(module, {name: functions[name] for name in functions.keys() & vars(module).keys()})
    taps.set_all(torch, {"Stream": cuda_streams.Stream, "Event": cuda_streams.AnyEvent})
    taps.set_all(torch.cuda.nvtx, _answers(_OF_NVTX))
    taps.set_all(torch.cuda.profiler, _answers({"start stop": None}))
    below = {  # what torch's own helpers and extensions call
        "_cuda_getDevice": lambda: machine.current,
        "_cuda_setDevice": lambda device: _set_device(machine, device),
        "_cuda_getDeviceCount": lambda: machine.count,
        **_answers({"_cuda_synchronize _cuda_emptyCache _cuda_sleep": None}),
    }
    taps.set_all(torch._C, {name: below[name] for name in below if hasattr(torch._C, name)})
    # Nothing is freed behind a stream's back. Not for the mode: the C++ method refuses our streams first.
    taps.set(torch.Tensor, "record_stream", lambda self, s: None)
    # nn.LSTM.flatten_parameters asks this and would call a cuDNN kernel (torch/nn/modules/rnn.py)
    taps.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    if hasattr(torch, "accelerator"):
        _install_accelerator(taps, machine, lambda: _functions(machine, streams, cuda_streams))


def _functions(machine: Machine, streams: RandomStreams, cuda_streams: CudaStreams) -> Functions:
    """torch.cuda.*"""
    of_streams: Functions = {
        "Stream": cuda_streams.Stream,
        "Event": cuda_streams.Event,
        "current_stream": lambda device=None: cuda_streams.current(device),
        "default_stream": lambda device=None: cuda_streams.default[machine.index(device)],
        "set_stream": lambda stream: cuda_streams.set_current(stream),
    }
    return _answers(_OF_CUDA) | _devices(machine) | _random(machine, streams) | of_streams


# Functions that have the same answer on every device, or nothing to do. Counters stay at zero: CPU memory has none.
_OF_CUDA: dict[str, Any] = {
    """init _lazy_init ipc_collect set_sync_debug_mode synchronize empty_cache reset_max_memory_allocated
    reset_max_memory_cached reset_peak_memory_stats reset_accumulated_memory_stats reset_peak_host_memory_stats
    reset_accumulated_host_memory_stats set_per_process_memory_fraction _record_memory_history""": None,
    "is_available is_initialized can_device_access_peer is_bf16_supported is_tf32_supported": True,
    "_is_in_bad_fork is_current_stream_capturing": False,
    """get_sync_debug_mode utilization memory_usage device_memory_used temperature power_draw clock_rate
    current_blas_handle current_solver_handle memory_allocated max_memory_allocated memory_reserved
    max_memory_reserved memory_cached max_memory_cached""": 0,
    "get_per_process_memory_fraction": 1.0,
    "get_device_capability": _CAPABILITY,
    "mem_get_info": (_TOTAL_MEMORY, _TOTAL_MEMORY),
    "get_gencode_flags": "",
    "memory_summary": "no counters",
    "list_gpu_processes": "no processes are running",
    "memory_stats memory_stats_as_nested_dict": Counter(),
    "get_arch_list": ["sm_80"],
    "memory_snapshot": [],
    "host_memory_stats host_memory_stats_as_nested_dict": {},
}
# marks for a profiler that is not there
_OF_NVTX = {"range_push range_pop range_start": 0, "range_end mark": None}


def _answers(table: Mapping[str, Any]) -> Functions:
    """A function of its own for each name."""
    return {name: _answering(answer) for names, answer in table.items() for name in names.split()}


def _answering(answer: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: copy(answer)


def _devices(machine: Machine) -> Functions:
    def properties(device: Any = None) -> SimpleNamespace:
        index = machine.index(device)
        own = {"name": "dp2ddp virtual device", "pci_bus_id": index, "uuid": UUID(int=index)}
        return SimpleNamespace(**own, **_PROPERTIES)

    return {
        "device_count": lambda: machine.count,
        "current_device": lambda: machine.current,
        "set_device": lambda device: _set_device(machine, device),
        "_exchange_device": lambda device: machine.set_current(device),
        "_maybe_exchange_device": lambda device: machine.set_current(device),
        "get_device_properties": properties,
        "get_device_name": lambda device=None: properties(device).name,
        "_lazy_call": lambda callable, **kwargs: callable(),
        "cudart": _Runtime,
    }


def _set_device(machine: Machine, device: Any) -> None:
    # Like torch: None and negative numbers change nothing (torch/cuda/__init__.py, set_device).
    if isinstance(device, int) and device < 0:
        return
    machine.set_current(machine.index(device))


# of torch.cuda.get_device_properties, beside a device's own
_PROPERTIES = {
    "major": _CAPABILITY[0], "minor": _CAPABILITY[1], "total_memory": _TOTAL_MEMORY, "multi_processor_count": 108,
    "is_integrated": 0, "is_multi_gpu_board": 0, "max_threads_per_multi_processor": 2048, "warp_size": 32,
    "regs_per_multiprocessor": 65536, "max_threads_per_block": 1024, "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 166912, "shared_memory_per_multiprocessor": 167936, "L2_cache_size": 40 * 2**20,
    "clock_rate": 1410000, "memory_clock_rate": 1215000, "memory_bus_width": 5120, "pci_device_id": 0,
    "pci_domain_id": 0,
}  # fmt: skip


class _Runtime:
    """torch.cuda.cudart(): each function succeeds."""

    cudaError = SimpleNamespace(success=0)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return _answering((_TOTAL_MEMORY, _TOTAL_MEMORY) if name == "cudaMemGetInfo" else 0)


def _random(machine: Machine, streams: RandomStreams) -> Functions:
    def generator(device: Any = "cuda") -> VirtualGenerator:
        return streams.generators[machine.index(device)]

    def set_all(new_states: Any) -> None:
        for index, state in enumerate(new_states):
            streams.generators[index].set_state(state)

    return {
        "manual_seed": lambda seed: _nothing(generator().manual_seed(int(seed))),
        "manual_seed_all": lambda seed: streams.seed_all(int(seed)),
        "seed": lambda: _nothing(generator().seed()),
        "seed_all": lambda: streams.seed_all(generator().seed()),
        "initial_seed": lambda: generator().initial_seed(),
        "get_rng_state": lambda device="cuda": generator(device).get_state(),
        "get_rng_state_all": lambda: [each.get_state() for each in streams.generators],
        "set_rng_state": lambda new_state, device="cuda": _nothing(generator(device).set_state(new_state)),
        "set_rng_state_all": set_all,
        "_get_generator": generator,
    }


def _nothing(result: object) -> None:
    return None


_OTHER_NAME = {  # in torch.accelerator -> in torch.cuda
    "current_device_index": "current_device",
    "current_device_idx": "current_device",
    "set_device_index": "set_device",
    "set_device_idx": "set_device",
    "get_memory_info": "mem_get_info",
    "empty_host_cache": "empty_cache",
}


def _install_accelerator(taps: Taps, machine: Machine, make: Callable[[], Functions]) -> None:
    """What torch.nn.parallel and DataLoader ask (torch >= 2.6)."""
    cuda, known = torch.device("cuda"), make().keys()
    of_cuda = {name: _OTHER_NAME.get(name, name) for name in vars(torch.accelerator)}
    functions: Functions = {
        **{name: make()[other] for name, other in of_cuda.items() if other in known},
        "current_accelerator": lambda check_available=False: cuda,
        "device_index": lambda device, /: machine.at(device),
        "get_device_capability": lambda device=None, /: {"supported_dtypes": set(LEGACY_DTYPES.values())},
    }
    for name in functions.keys() & vars(torch.accelerator).keys():
        taps.set(torch.accelerator, name, functions[name])


# ---- streams and events of a machine that does everything at once: names without work, but real clocks


class VirtualEvent:
    """torch.Event(device), torch.cuda.Event(enable_timing); all work is done when `record` returns, so the clock is the
    host's.
    """

    _streams: CudaStreams  # set by the subclasses that CudaStreams makes

    def __init__(self, first: Any = None, *rest: Any, enable_timing: bool = False, **flags: Any) -> None:
        device = flags.get("device") if first is None or isinstance(first, bool) else first
        self.device: torch.device | None = None if device is None else self._streams.device(device)
        self._timed = enable_timing or first is True
        self._recorded_at: float | None = None
        self.event_id = self.cuda_event = 0  # of an event that was never recorded

    def record(self, stream: Any = None) -> None:
        stream = self._streams.current() if stream is None else stream
        self.device = self.device or stream.device
        self.event_id = self.cuda_event = id(self)
        self._recorded_at = time.perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def wait(self, stream: Any = None) -> None: ...

    def elapsed_time(self, end_event: VirtualEvent) -> float:
        """Milliseconds from this event to the other (ATen/cuda/CUDAEvent.h)."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._recorded_at is None or end_event._recorded_at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._recorded_at - self._recorded_at) * 1000


class VirtualStream:
    """torch.cuda.Stream; its work is already done when anybody asks. `with stream:` makes it current."""

    _streams: CudaStreams  # set by the subclass that CudaStreams makes

    device_type = 1  # c10/core/DeviceType.h

    def __init__(self, device: Any = None, priority: int = 0, **names: Any) -> None:
        """names: stream_id, device_index and device_type of a stream that exists."""
        self.device = self._streams.device(names.get("device_index", device))
        self.device_index: int = self.device.index
        self.stream_id = self.cuda_stream = int(names.get("stream_id", next(_IDS)))
        self.priority = min(max(priority, -5), 0)
        self._before: list[tuple[int, VirtualStream]] = []

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -5  # lowest, highest, of today's devices

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: Any) -> None:
        self.wait_event(stream.record_event())

    def wait_event(self, event: Any) -> None:
        event.wait(self)

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        event = event or self._streams.Event()
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VirtualStream) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, int]:
        return self.device_index, self.stream_id

    def __enter__(self) -> VirtualStream:
        self._before.append((self._streams.machine.current, self._streams.current(self.device_index)))
        self._streams.set_current(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        device, stream = self._before.pop()
        self._streams.set_current(stream)
        self._streams.machine.set_current(device)


_IDS = itertools.count(1)


# torch._dynamo, which any optimizer imports, asks before torch 2.6 whether torch.cuda has streams and events of
# abstract kinds of torch's own (torch/_dynamo/device_interface.py of 2.4); since then they are classes of C++.
for _real, _virtual in ((torch.cuda.Stream, VirtualStream), (torch.cuda.Event, VirtualEvent)):
    for _base in _real.__mro__:
        if isinstance(_base, ABCMeta):
            _base.register(_virtual)


class CudaStreams:
    """The current stream of each device, per thread, and the classes of streams and events of this machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.Stream: type[VirtualStream] = self._own(VirtualStream, "Stream")
        self.AnyEvent: type[VirtualEvent] = self._own(VirtualEvent, "Event", "torch")
        self.Event: type[VirtualEvent] = type("Event", (self.AnyEvent,), {"__module__": "torch.cuda"})
        self.default: list[VirtualStream] = [
            self.Stream(index, stream_id=0) for index in range(machine.count)
        ]
        self._chosen = threading.local()  # by device: what this thread has made current

    def _own(self, cls: type, name: str, module: str = "torch.cuda") -> Any:
        return type(name, (cls,), {"_streams": self, "__module__": module})

    def device(self, device: Any = None) -> torch.device:
        return torch.device("cuda", self.machine.index(device))

    def current(self, device: Any = None) -> VirtualStream:
        index = self.machine.index(device)
        return getattr(self._chosen, str(index), self.default[index])

    def set_current(self, stream: VirtualStream | None) -> None:
        """And its device (torch/csrc/cuda/Module.cpp); None changes nothing."""
        if stream is not None:
            setattr(self._chosen, str(stream.device_index), stream)
            self.machine.set_current(stream.device_index)
