"""Seeds that are set while training, and random states that are kept and set again."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .ddp import ReplicaDDP
from .process import exchange, own_rank, world_size
from .replicas import default_generator


def seed_again(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """torch.manual_seed, or its like, where the same seed may be set more than once.

    It seeds all devices, so what a replica draws from begins anew as well. A rank notices another seed by itself;
    the same one it has to be told of.
    """
    result = function(*args, **kwargs)
    ReplicaDDP.device_stream.seed, ReplicaDDP.device_stream.placed = None, torch.empty(0)
    return result


def seed_first_device(seed: int) -> None:
    """torch.cuda.manual_seed(), which seeds one device: what the replicas on the others draw from goes on."""
    if world_size() == 1:
        torch.cuda.manual_seed(seed)
        return
    generator = default_generator(torch.device("cuda"))
    fresh = torch.Generator(generator.device).manual_seed(seed).get_state()
    ReplicaDDP.device_stream.place(generator, fresh)


def get_device_states() -> list[torch.Tensor]:
    """torch.cuda.get_rng_state_all(), as one process with all devices has it.

    The first is what the script itself draws from, the same on every rank; the others are what the replicas on
    the other devices draw from, each on its own rank.
    """
    if world_size() == 1:
        return torch.cuda.get_rng_state_all()
    generator, stream = default_generator(torch.device("cuda")), ReplicaDDP.device_stream
    stream.settle(generator)
    return exchange(stream.state if own_rank() else generator.get_state())


def set_device_states(states: Sequence[torch.Tensor]) -> None:
    """torch.cuda.set_rng_state_all(), as one process with all devices has it."""
    if world_size() == 1:
        torch.cuda.set_rng_state_all(states)
        return
    for index, state in enumerate(states):
        set_device_state(state, index)


def get_device_state(device: Any = "cuda") -> torch.Tensor:
    """torch.cuda.get_rng_state(device), of any device of the run."""
    return get_device_states()[torch.device(device).index or 0]


def set_device_state(state: torch.Tensor, device: Any = "cuda") -> None:
    """torch.cuda.set_rng_state(state, device), of any device of the run; the others stay as they are."""
    if world_size() == 1:
        torch.cuda.set_rng_state(state, device)
        return
    index, generator = torch.device(device).index or 0, default_generator(torch.device("cuda"))
    if index == 0:
        ReplicaDDP.device_stream.place(generator, state)
    elif index == own_rank():
        ReplicaDDP.device_stream.settle(generator)
        ReplicaDDP.device_stream.state = state.clone()


@contextlib.contextmanager
def fork_streams(devices: Any = None, enabled: bool = True, **others: Any) -> Iterator[None]:
    """torch.random.fork_rng(): what replicas draw from goes back to where it was as well."""
    if world_size() == 1 or not enabled:
        with torch.random.fork_rng(devices, enabled, **others):
            yield
        return
    ranks = (
        range(world_size()) if devices is None else [torch.device(device).index or 0 for device in devices]
    )
    generator, stream = default_generator(torch.device("cuda")), ReplicaDDP.device_stream
    stream.settle(generator)
    before = stream.seed, stream.state, stream.placed
    try:
        with torch.random.fork_rng([torch.cuda.current_device()] if 0 in ranks else [], **others):
            yield
    finally:
        if own_rank() in ranks:
            stream.seed, stream.state, stream.placed = before
