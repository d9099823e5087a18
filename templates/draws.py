"""Random numbers of replicas."""

import random
import sys
from contextlib import contextmanager
from typing import Any, Iterator, List

import torch
import torch.distributed as dist

from .broadcast import tell_all
from .streams import ReplicaStream, host_streams, set_host_streams


class ReplicaDraws:
    """Around a replica's forward: it draws from streams of its own, and the script's stay where they are.

    On its device, replica r draws from the stream of device r; the first device's is the script's as well, as under
    DataParallel. On the host DataParallel's replicas race for the script's streams: replica r's begin at a number of
    the script's plus r, and the script goes on as if it had drawn that number, if replica 0 drew any.
    """

    on_host = on_device = False

    @contextmanager
    def __call__(self, has_rows: bool) -> Iterator[None]:
        script, device = host_streams(), None
        if torch.cuda.is_available():
            device = torch.cuda.get_rng_state()
            torch.cuda.set_rng_state(ReplicaStream.current() if dist.get_rank() else device)
        seed = int(torch.randint(2**62, (), device="cpu")) + dist.get_rank()
        self.after = torch.get_rng_state()
        seed_host_streams(seed)
        first = draw_on_host()
        seed_host_streams(seed)
        try:
            yield
        finally:
            self.on_host = draw_on_host() != first  # nothing drew if that number comes next
            set_host_streams(script)
            if device is not None:
                end = torch.cuda.get_rng_state()
                self.on_device = not torch.equal(device, end)
                if dist.get_rank():
                    torch.cuda.set_rng_state(device)
                    ReplicaStream.state = end if has_rows else ReplicaStream.state

    def go_on(self, on_host: bool, on_device: bool) -> None:
        """The script's streams go on behind what replica 0 drew."""
        if on_host:
            torch.set_rng_state(self.after)
        if on_device:
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
