"""Random numbers of replicas."""

import random
import sys
from contextlib import contextmanager
from typing import Any, Iterator, List, Optional

import torch
import torch.distributed as dist

from .broadcast import Rank
from .streams import host_streams, set_host_streams


@contextmanager
def replica_draws(has_rows: bool, number: Optional[int] = None) -> Iterator[List[int]]:
    """Around a replica's forward: it draws from streams of its own. At the end, what `go_on_behind` is to know of it.

    On its device, replica r draws from the stream of device r; the first device's is the script's as well, as under
    DataParallel. On the host DataParallel's replicas race for the script's streams: replica r's begin at a number of
    the script's plus r, and the script goes on as if it had drawn that number, if replica 0 drew any.
    """
    drew: List[int] = []
    number = dist.get_rank() if number is None else number
    script, on_device = host_streams(), torch.cuda.is_available()
    if on_device:
        script_on_device = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(Rank.device_stream if number else script_on_device)
    seed = int(torch.randint(2**62, (), device="cpu")) + number
    seed_host_streams(seed)
    first = draw_on_host()
    seed_host_streams(seed)
    try:
        yield drew
    finally:
        drew += [draw_on_host() != first]  # nothing drew if that number comes next
        set_host_streams(script)
        if on_device:
            end = torch.cuda.get_rng_state()
            drew += end.view(torch.int64).tolist()
            if number or dist.get_rank():
                torch.cuda.set_rng_state(script_on_device)
                Rank.device_stream = end if has_rows else Rank.device_stream


def go_on_behind(drew: List[int]) -> None:
    """The script's streams go on behind what replica 0 drew: whether on the host, and to where on its device."""
    if drew[0]:
        torch.randint(2**62, (), device="cpu")
    if drew[1:]:
        torch.cuda.set_rng_state(torch.tensor(drew[1:], device="cpu").view(torch.uint8))


def seed_host_streams(seed: int) -> None:
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def draw_on_host() -> List[Any]:
    numpy = sys.modules.get("numpy")
    of_torch = torch.rand((), dtype=torch.float64, device="cpu").item()
    return [random.random(), of_torch, numpy and numpy.random.random_sample()]
