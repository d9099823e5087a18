"""What one rank's replica raises is raised on all."""

import os
import sys
import time
from typing import Any, List, Optional, Sequence

import torch
import torch.distributed as dist

from .broadcast import Rank, exchange_numbers, tell_all
from .overlapping import OverlappingSums, WholeBatchParallel


class WholeBatchSharingErrors(WholeBatchParallel):
    """WholeBatchParallel for scripts that catch errors: what a replica raises on one rank is raised on all.

    In backward that cannot be: the others wait for sums. A rank that goes on behind an error of its own there ends.
    """

    stands_for_data_parallel = True

    def run_replica(self, replica: Any, has_rows: bool, inputs: Any, kwargs: Any) -> Any:
        outputs, error = None, None
        try:
            outputs = super().run_replica(replica, has_rows, inputs, kwargs)
        except Exception as raised:
            error = raised if has_rows else None
        raise_on_all(error)
        return outputs

    def join_rows(self, rows: torch.Tensor, counts: Sequence[int], dim: int) -> torch.Tensor:
        whole: torch.Tensor = super().join_rows(rows, counts, dim)
        if whole.requires_grad:
            whole.register_hook(begin_backward)
        return whole


def raise_on_all(error: Optional[Exception]) -> None:
    """What a replica has raised on this rank, or on another."""
    failed = [number for (number,) in exchange_numbers([error is not None])]
    if any(failed):
        error_of_all = tell_all(error, failed.index(1))
        raise error or error_of_all


class EndOfBackward:
    """Autograd calls it at the end of a backward, and drops it uncalled where one fails."""

    is_awaited = False
    failed: List[int] = []  # how many sums of gradients had set out
    errors = 0  # of all ranks
    timeout = 60  # seconds: what fails on all ranks has failed on each by then

    def __call__(self) -> None:
        EndOfBackward.is_awaited = False

    def __del__(self) -> None:
        if self.is_awaited:
            EndOfBackward.is_awaited = False
            self.failed.append(sum(len(sums.works) for sums in OverlappingSums.in_graphs))


def begin_backward(gradient: torch.Tensor) -> None:
    """A hook of outputs: a backward comes to what ranks compute of their own rows."""
    if not EndOfBackward.is_awaited:
        EndOfBackward.is_awaited, Rank.before_meeting = True, end_if_alone
        torch.autograd.Variable._execution_engine.queue_callback(EndOfBackward())


def end_if_alone() -> None:
    """Before ranks meet: behind an error in backward, go on if it was that of all ranks, at the same place."""
    if not EndOfBackward.failed:
        return
    EndOfBackward.errors += 1
    sums = EndOfBackward.failed[0]
    EndOfBackward.failed.clear()
    store, since = dist.distributed_c10d._get_default_store(), time.monotonic()
    place = f"error {EndOfBackward.errors} in a backward, behind {sums} sums"
    store.add(place, 1)
    while store.add(place, 0) < dist.get_world_size():
        if time.monotonic() - since > EndOfBackward.timeout:
            error = sys.exc_info()[1] or "an error"
            words = "in backward, on this rank alone: the others wait for its sums, so the run ends"
            print(f"rank {dist.get_rank()}: {error} {words}", file=sys.__stderr__, flush=True)
            sys.stdout.flush()
            os._exit(1)  # what else it would wait for does not come
        time.sleep(0.01)
