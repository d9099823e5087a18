"""torch.cuda and torch.accelerator: what scripts ask of streams, events, counters and the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .conftest import Install

CUDA_1 = torch.device("cuda", 1)


def public_names(cls: type) -> set[str]:
    """torch before 2.6 has abstract classes, with a name of `abc`; C's handles are of no use here."""
    of_c = {"_abc_impl", "_as_parameter_", "native_handle"}
    return {name for name in dir(cls) if not name.startswith("__")} - of_c


def test_streams_have_torchs_attributes(virtual: Install) -> None:
    real = public_names(torch.cuda.Stream)
    virtual(2)
    stream = torch.cuda.Stream(device=1, priority=-100)
    assert real <= set(dir(stream))
    assert (stream.device, stream.device_index, stream.device_type) == (CUDA_1, 1, 1)
    assert (stream.priority, stream.priority_range()) == (-5, (0, -5))
    assert isinstance(stream, torch.Stream)
    same = torch.cuda.Stream(stream_id=stream.stream_id, device_index=1, device_type=1)
    assert same == stream
    assert stream != torch.cuda.Stream(device=1)
    assert torch.cuda.default_stream(1).cuda_stream == 0


def test_a_stream_waits_for_another(virtual: Install) -> None:
    virtual(2)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    event = first.record_event()
    second.wait_event(event)
    second.wait_stream(first)
    assert isinstance(event, torch.cuda.Event)
    assert event.query()
    with pytest.raises(AttributeError):
        second.wait_stream(None)


def test_events_have_torchs_attributes(virtual: Install) -> None:
    real = public_names(torch.cuda.Event) - {"ipc_handle", "from_ipc_handle"}  # of another process
    virtual(2)
    event = torch.cuda.Event(True, False, interprocess=True)
    assert real <= set(dir(event))
    assert (event.device, event.cuda_event) == (None, 0)
    event.record(torch.cuda.Stream(1))
    assert event.device == CUDA_1
    assert event.cuda_event == event.event_id != 0
    assert torch.Event("cuda:1", enable_timing=True).device == CUDA_1
    assert isinstance(event, torch.Event)


def test_events_that_cannot_tell_the_time(virtual: Install) -> None:
    virtual(2)
    timed, plain = torch.cuda.Event(enable_timing=True), torch.cuda.Event()
    with pytest.raises(ValueError, match="must be recorded before"):
        timed.elapsed_time(torch.cuda.Event(enable_timing=True))
    plain.record()
    timed.record()
    with pytest.raises(ValueError, match="created with argument 'enable_timing=True'"):
        timed.elapsed_time(plain)


def test_counters_are_there_and_zero(virtual: Install) -> None:
    virtual(2)
    stats = torch.cuda.memory_stats(1)
    assert stats["allocated_bytes.all.current"] == stats["num_ooms"] == 0
    if hasattr(torch, "accelerator"):  # since torch 2.6
        assert torch.accelerator.memory_stats() == stats


ANSWERED: dict[str, Callable[[], Any]] = {
    "profiler": lambda: (torch.cuda.profiler.start(), torch.cuda.profiler.stop()),
    "runtime": lambda: torch.cuda.cudart().cudaProfilerStart(),
    "runtime memory": lambda: torch.cuda.cudart().cudaMemGetInfo(0),
    "blas": lambda: torch.cuda.current_blas_handle(),
    "sleep": lambda: torch.cuda._sleep(100),
    "host memory": lambda: torch.cuda.host_memory_stats(),
    "accelerator memory": lambda: torch.accelerator.get_memory_info(),
    "accelerator dtypes": lambda: torch.accelerator.get_device_capability()["supported_dtypes"],
    "accelerator cache": lambda: torch.accelerator.empty_host_cache(),
    "shared memory": lambda: torch.cuda.get_device_properties(1).shared_memory_per_block_optin,
    "which card": lambda: torch.cuda.get_device_properties(1).uuid,
}


@pytest.mark.parametrize("name", ANSWERED)
def test_questions_have_answers_without_a_driver(virtual: Install, name: str) -> None:
    virtual(2)
    if not hasattr(torch._C, "_cuda_sleep") and name in ("runtime", "runtime memory", "sleep"):
        pytest.skip("torch without CUDA")
    if name.startswith("accelerator") and not hasattr(torch, "accelerator"):
        pytest.skip("torch before 2.6")
    ANSWERED[name]()


def test_cards_are_told_apart(virtual: Install) -> None:
    virtual(2)
    first, second = map(torch.cuda.get_device_properties, range(2))
    assert first.uuid != second.uuid
    assert first.pci_bus_id != second.pci_bus_id
