"""Random numbers of replicas."""

import random
import sys
from contextlib import contextmanager
from typing import Any, Iterator, List, Sequence

import torch
import torch.distributed as dist

from .broadcast import tell_all
from .streams import ReplicaStream, host_streams, set_host_streams


@contextmanager
def replica_draws(has_rows: bool) -> Iterator[List[bool]]:
    """Around a replica's forward: it draws from streams of its own. At the end, whether it drew: on host, and device.

    On its device, replica r draws from the stream of device r; the first device's is the script's as well, as under
    DataParallel. On the host DataParallel's replicas race for the script's streams: replica r's begin at a number of
    the script's plus r, and the script goes on as if it had drawn that number, if replica 0 drew any.
    """
    drew: List[bool] = []
    script, rank, on_device = host_streams(), dist.get_rank(), torch.cuda.is_available()
    if on_device:
        script_on_device = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(ReplicaStream.state if rank else script_on_device)
    seed = int(torch.randint(2**62, (), device="cpu")) + rank
    seed_host_streams(seed)
    first = draw_on_host()
    seed_host_streams(seed)
    try:
        yield drew
    finally:
        drew += [draw_on_host() != first, False]  # nothing drew if that number comes next
        set_host_streams(script)
        if on_device:
            end = torch.cuda.get_rng_state()
            drew[1] = not torch.equal(script_on_device, end)
            if rank:
                torch.cuda.set_rng_state(script_on_device)
                ReplicaStream.state = end if has_rows else ReplicaStream.state


def go_on_behind(drew: Sequence[int]) -> None:
    """The script's streams go on behind what replica 0 drew."""
    if drew[0]:
        torch.randint(2**62, (), device="cpu")
    if drew[1]:
        torch.cuda.set_rng_state(tell_all(torch.cuda.get_rng_state()))


def seed_host_streams(seed: int) -> None:
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def draw_on_host() -> List[Any]:
    numpy = sys.modules.get("numpy")
    of_torch = torch.rand((), dtype=torch.float64, device="cpu").item()
    return [random.random(), of_torch, numpy and numpy.random.random_sample()]
