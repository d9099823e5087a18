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


class Backward:
    """A backward that has come to outputs, until it ends."""

    sums: Optional[List[OverlappingSums]] = None
    errors = 0  # in those of all ranks
    timeout = 60  # seconds: what fails on all ranks has failed on each by then


def begin_backward(gradient: torch.Tensor) -> None:
    """A hook of outputs: from here on a rank computes gradients of its own rows."""
    if Backward.sums is None:
        Backward.sums, Rank.before_meeting = [*OverlappingSums.in_graphs], end_if_alone
        torch.autograd.Variable._execution_engine.queue_callback(end_backward)


def end_backward() -> None:
    """Autograd calls it at the end of a backward that does not fail."""
    Backward.sums = None


def end_if_alone() -> None:
    """Before ranks meet: behind a backward that has failed, go on if it has on all ranks, at the same place."""
    is_inside = getattr(torch._C, "_current_graph_task_id", int)() >= 0  # old torch does not say
    if Backward.sums is None or is_inside:
        return
    sums = sum(len(each.works) for each in Backward.sums)
    Backward.sums, Backward.errors = None, Backward.errors + 1
    store, since = dist.distributed_c10d._get_default_store(), time.monotonic()
    place = f"error {Backward.errors} in a backward, behind {sums} sums"
    store.add(place, 1)
    while store.add(place, 0) < dist.get_world_size():
        if time.monotonic() - since > Backward.timeout:
            error = sys.exc_info()[1] or "an error"
            words = "in backward, on this rank alone: the others wait for its sums, so the run ends"
            print(f"rank {dist.get_rank()}: {error} {words}", file=sys.__stderr__, flush=True)
            sys.stdout.flush()
            os._exit(1)  # what else it would wait for does not come
        time.sleep(0.01)
