"""CUDA streams and events of a machine that does everything at once: names without work, but real clocks."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch

from .machine import Machine


class VirtualEvent:
    """torch.cuda.Event; all work is done when `record` returns, so the clock is the host's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # Any: CUDA flags, none matters here
        self._recorded_at: float | None = None

    def record(self, stream: Any = None) -> None:
        self._recorded_at = time.perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def wait(self, stream: Any = None) -> None: ...

    def elapsed_time(self, end_event: VirtualEvent) -> float:
        """Milliseconds from this event to the other."""
        if self._recorded_at is None or end_event._recorded_at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._recorded_at - self._recorded_at) * 1000


class VirtualStream:
    """torch.cuda.Stream; its work is already done when anybody asks. `with stream:` makes it current."""

    _streams: CudaStreams  # set by the subclass that CudaStreams makes

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.device_index = self._streams.machine.index(device)
        self.device = torch.device("cuda", self.device_index)
        self.stream_id = self.cuda_stream = int(kwargs.get("stream_id", id(self)))
        self.priority = priority
        self._before: list[tuple[int, VirtualStream]] = []

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        event = event or VirtualEvent()
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VirtualStream) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, int]:
        return self.device_index, self.stream_id

    def __enter__(self) -> VirtualStream:
        before = self._streams.machine.set_current(self.device_index)
        self._before.append((before, self._streams.current(self.device_index)))
        self._streams.set_current(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        device, stream = self._before.pop()
        self._streams.set_current(stream)
        self._streams.machine.set_current(device)


class CudaStreams:
    """The current stream of each device, per thread, and the class of streams of this machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.Stream: type[VirtualStream] = type(
            "Stream", (VirtualStream,), {"_streams": self, "__module__": "torch.cuda"}
        )
        self.default = [self.Stream(index, stream_id=0) for index in range(machine.count)]
        self._thread = threading.local()

    def current(self, device: Any = None) -> VirtualStream:
        index = self.machine.index(device)
        return self._chosen().get(index, self.default[index])

    def set_current(self, stream: VirtualStream) -> None:
        self._chosen()[stream.device_index] = stream

    def _chosen(self) -> dict[int, VirtualStream]:
        chosen: dict[int, VirtualStream] | None = getattr(self._thread, "chosen", None)
        if chosen is None:
            chosen = self._thread.chosen = {}
        return chosen


class StreamContext:
    """torch.cuda.stream(stream): makes it and its device current; None changes nothing."""

    def __init__(self, stream: VirtualStream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *exc_info: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*exc_info)
