"""Random numbers of replicas."""

import random
import sys
from contextlib import contextmanager
from typing import Any, Iterator, List

import torch
import torch.distributed as dist

from .streams import ReplicaStream, host_streams, same_streams, set_host_streams, share_device_stream


class ReplicaDraws:
    """Around a replica's forward: it draws from streams of its own, and the script's stay where they are.

    On its device, replica r draws from the stream of device r; the first device's is the script's as well, as under
    DataParallel. On the host DataParallel's replicas race for the script's streams: replica r's begin at a number of
    the script's plus r, and the script goes on as if it had drawn that number, if replica 0 drew any.
    """

    on_host = on_device = False

    @contextmanager
    def __call__(self, has_rows: bool) -> Iterator[None]:
        device_stream = self.enter_device() if torch.cuda.is_available() else None
        script = host_streams()
        seed = int(torch.randint(2**62, (), device="cpu")) + dist.get_rank()
        self.after = torch.get_rng_state()
        begun = seed_host_streams(seed)
        try:
            yield
        finally:
            self.on_host = not same_streams(begun, host_streams())
            set_host_streams(script)
            if device_stream is not None:
                self.leave_device(device_stream, has_rows)

    def enter_device(self) -> torch.Tensor:
        script = torch.cuda.get_rng_state()
        if dist.get_rank():
            torch.cuda.set_rng_state(ReplicaStream.current())
        return script

    def leave_device(self, script: torch.Tensor, has_rows: bool) -> None:
        end = torch.cuda.get_rng_state()
        self.on_device = not torch.equal(script, end)
        if dist.get_rank():
            torch.cuda.set_rng_state(script)
            if has_rows:
                ReplicaStream.state = end

    def go_on(self, on_host: bool, on_device: bool) -> None:
        """The script's streams go on behind what replica 0 drew."""
        if on_host:
            torch.set_rng_state(self.after)
        if on_device:
            share_device_stream()


def seed_host_streams(seed: int) -> List[Any]:
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    return host_streams()
