"""Batch norm over the rows of all replicas, as Synchronized-BatchNorm-PyTorch writes it: replicas exchange messages.

Under DataParallel the replicas' threads send what they have summed up to the first one's, which calls a function of
all messages. Here every rank gets all messages, and calls that function itself: it has the same numbers, so all have
the same answers and running averages.
"""

import contextlib
import io
from typing import Any

import torch.distributed as dist

from .functions import Running
from .one_rank import share_tree
from .ranks import ranks_apart
from .sums import CopyToRanks
from .trees import map_tensors, tensors_of


def master_on_ranks(kind: Any) -> Any:
    """Let the replicas that a SyncMaster brings together be ranks."""
    Running.exchange_messages = True
    kind.run_master = answer_on_ranks
    kind.register_slave = lambda master, identifier: PipeOnRanks(master)
    return kind


class PipeOnRanks:
    """What a SyncMaster gives its other replicas."""

    def __init__(self, master: Any) -> None:
        self.master = master

    def run_slave(self, message: Any) -> Any:
        return answer_on_ranks(self.master, message)


def answer_on_ranks(master: Any, message: Any) -> Any:
    """What the layer's function of all messages has for the replica of this rank."""
    rank, numbers = dist.get_rank(), Running.numbers
    own = [tensor for tensor in tensors_of(message) if tensor.requires_grad]
    trees = [share_tree(message if owner == rank else None, owner, own) for owner in numbers]
    trained = [tensor for tensor in tensors_of(trees) if tensor.requires_grad]
    summed = iter(CopyToRanks.apply(None, *trained) if trained else ())
    trees = map_tensors(lambda tensor: next(summed) if tensor.requires_grad else tensor, trees)
    with ranks_apart(), contextlib.redirect_stdout(io.StringIO()) if rank else contextlib.nullcontext():
        answers = dict(master._master_callback([*enumerate(trees)]))
    return answers[numbers.index(rank) if rank in numbers else 0]
