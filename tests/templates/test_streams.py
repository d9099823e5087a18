"""Random streams of replicas' devices, where no device can be asked; the corpus trains with them."""

from __future__ import annotations

import pytest
import torch
from dp2ddp.templates.broadcast import Rank
from dp2ddp.templates.streams import begin_device_stream, seed_all_devices


def test_a_forked_worker_that_seeds_asks_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """`worker_init_fn=lambda number: set_seed(number)`: CUDA cannot begin again in a forked process."""
    seeds: list[int] = []
    states = [torch.zeros(1)]  # once, before the worker
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    monkeypatch.setattr(torch.cuda, "get_rng_state", states.pop)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(Rank, "device_stream", None)
    begin_device_stream()
    with torch.random.fork_rng([]):
        torch.manual_seed(3)
    seed_all_devices(4)
    assert seeds == [3, 4]
    assert torch.equal(Rank.device_stream, torch.zeros(1))
