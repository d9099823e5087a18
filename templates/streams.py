"""Random numbers: the script's, which all ranks draw alike, and those of the ranks' devices."""

import random
import sys
from contextlib import contextmanager
from typing import Any, Iterator, List

import torch
import torch.distributed as dist

from .broadcast import Rank


def host_streams() -> List[Any]:
    """The states of Python's, torch's and numpy's random numbers on the host."""
    numpy = sys.modules.get("numpy")
    return [random.getstate(), torch.get_rng_state(), numpy and numpy.random.get_state()]


def set_host_streams(states: List[Any]) -> None:
    random.setstate(states[0])
    torch.set_rng_state(states[1])
    if states[2] and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states[2])


def begin_device_stream() -> None:
    """Replicas draw from streams of their devices from now on; these begin anew when all devices are seeded."""
    seed_all = torch.cuda.manual_seed_all

    def seed_and_begin(seed: int) -> None:  # torch.manual_seed calls it
        seed_all(seed)
        if torch.cuda.is_initialized():  # not in a forked worker
            Rank.device_stream = torch.Generator("cuda").manual_seed(int(seed)).get_state()

    Rank.device_stream, torch.cuda.manual_seed_all = torch.cuda.get_rng_state(), seed_and_begin


def seed_all_devices(seed: int) -> None:
    """torch.cuda.manual_seed_all(), as it is by now."""
    torch.cuda.manual_seed_all(seed)


def get_device_states() -> List[torch.Tensor]:
    """torch.cuda.get_rng_state_all(): the first device's stream is the script's, the others' are the replicas'."""
    own = Rank.device_stream if dist.get_rank() else torch.cuda.get_rng_state()
    states: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, own, Rank.host)
    return states


def set_device_states(new_states: Any) -> None:
    """torch.cuda.set_rng_state_all()."""
    torch.cuda.set_rng_state(new_states[0])
    Rank.device_stream = new_states[min(dist.get_rank(), len(new_states) - 1)].clone()


def get_device_state(device: Any = 0) -> torch.Tensor:
    """torch.cuda.get_rng_state(device), of any device of the run."""
    return get_device_states()[index_of(device)]


def set_device_state(new_state: torch.Tensor, device: Any = 0) -> None:
    """torch.cuda.set_rng_state(new_state, device), of any device of the run."""
    if index_of(device) == 0:
        torch.cuda.set_rng_state(new_state)
    elif index_of(device) == dist.get_rank():
        Rank.device_stream = new_state.clone()


@contextmanager
def fork_streams(devices: Any = None, enabled: bool = True, **options: Any) -> Iterator[None]:
    """torch.random.fork_rng(): what replicas draw from goes back to where it was as well."""
    forked = range(dist.get_world_size()) if devices is None else [*map(index_of, devices)]
    is_on_device = torch.cuda.is_available()
    before = Rank.device_stream if is_on_device else None
    with torch.random.fork_rng(
        [torch.cuda.current_device()] if is_on_device and 0 in forked else [], enabled, **options
    ):
        yield
    if is_on_device and enabled and dist.get_rank() in forked:
        Rank.device_stream = before


def index_of(device: Any) -> int:
    return device if isinstance(device, int) else torch.device(device).index or 0
