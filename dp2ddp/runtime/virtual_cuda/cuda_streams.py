"""CUDA streams and events of a machine that does everything at once: names without work, but real clocks."""

from __future__ import annotations

import itertools
import threading
import time
from abc import ABCMeta
from typing import Any

import torch

from dp2ddp.runtime.virtual_cuda.places import Machine

_CUDA = 1  # c10/core/DeviceType.h
_PRIORITIES = (0, -5)  # lowest, highest, of today's devices


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

    device_type = _CUDA

    def __init__(self, device: Any = None, priority: int = 0, **names: Any) -> None:
        """names: stream_id, device_index and device_type of a stream that exists."""
        self.device = self._streams.device(names.get("device_index", device))
        self.device_index: int = self.device.index
        self.stream_id = self.cuda_stream = int(names.get("stream_id", next(_IDS)))
        self.priority = min(max(priority, _PRIORITIES[1]), _PRIORITIES[0])
        self._before: list[tuple[int, VirtualStream]] = []

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return _PRIORITIES

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


class _Chosen(threading.local):
    """The stream that this thread has made current, by device."""

    def __init__(self) -> None:
        self.streams: dict[int, VirtualStream] = {}


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
        self._chosen = _Chosen()

    def _own(self, cls: type, name: str, module: str = "torch.cuda") -> Any:
        return type(name, (cls,), {"_streams": self, "__module__": module})

    def device(self, device: Any = None) -> torch.device:
        return torch.device("cuda", self.machine.index(device))

    def current(self, device: Any = None) -> VirtualStream:
        index = self.machine.index(device)
        return self._chosen.streams.get(index, self.default[index])

    def set_current(self, stream: VirtualStream | None) -> None:
        """And its device (torch/csrc/cuda/Module.cpp); None changes nothing."""
        if stream is not None:
            self._chosen.streams[stream.device_index] = stream
            self.machine.set_current(stream.device_index)
