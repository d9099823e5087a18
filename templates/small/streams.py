"""Random numbers: what ranks draw alike, and what replicas draw."""

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from .broadcast import tell_all


def host_streams() -> list[Any]:
    numpy = sys.modules.get("numpy")
    return [random.getstate(), torch.get_rng_state(), numpy and numpy.random.get_state()]


def set_host_streams(states: list[Any]) -> None:
    random.setstate(states[0])
    torch.set_rng_state(states[1])
    if "numpy" in sys.modules and states[2]:
        sys.modules["numpy"].random.set_state(states[2])


class ReplicaStreams:
    """What replicas draw from on their devices.

    On a GPU the first device's stream is the script's and replica 0's in turn, as under DataParallel: all ranks go on with it.
    """

    device: dict[int, torch.Tensor] = {}  # by the seed, with which it begins anew

    @contextmanager
    def __call__(self, has_rows: bool) -> Iterator[None]:
        kind = ReplicaStreams
        apart_device = torch.cuda.is_available() and dist.get_rank() > 0
        if apart_device:
            seed = torch.cuda.initial_seed()
            if seed not in kind.device:
                kind.device = {seed: torch.Generator("cuda").manual_seed(seed).get_state()}
            torch.cuda.set_rng_state(kind.device[seed])
        try:
            yield
        finally:
            if apart_device and has_rows:
                kind.device[seed] = torch.cuda.get_rng_state()


def seed_all_streams(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """torch.manual_seed, where the same seed may be set more than once: the replicas' streams begin anew, too."""
    function(*args, **kwargs)
    ReplicaStreams.device = {}


def share_streams(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Something that seeds a stream from the operating system: all ranks go on with rank 0's."""
    result = function(*args, **kwargs)
    set_host_streams(tell_all(host_streams()))
    return tell_all(result)


def get_device_states() -> list[torch.Tensor]:
    """torch.cuda.get_rng_state_all(): the first device's stream is the script's, the others' are the replicas'."""
    own = torch.cuda.get_rng_state()
    seed = torch.cuda.initial_seed()
    if dist.get_rank():
        own = ReplicaStreams.device.get(seed, torch.Generator("cuda").manual_seed(seed).get_state())
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, own)
    return states


def set_device_states(states: Any, *rest: Any) -> None:
    torch.cuda.set_rng_state(states[0])
    ReplicaStreams.device = {torch.cuda.initial_seed(): states[min(dist.get_rank(), len(states) - 1)].clone()}


def share_device_stream() -> None:
    """Let all ranks draw alike on their devices, as rank 0 does."""
    if torch.cuda.is_available():
        torch.cuda.set_rng_state(tell_all(torch.cuda.get_rng_state()))
