"""Forwards that may fill what outlives them: every rank runs all replicas, one after another."""

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from .broadcast import Rank
from .draws import replica_draws
from .model import WholeBatch
from .replicas import make_replica
from .rows import OwnRows
from .streams import get_device_states
from .trees import map_tensors, tensors_of


def run_rows_in_turns(
    wrapper: Any, rows: OwnRows, copies: Mapping[Any, torch.Tensor], batch: Any
) -> Tuple[Any, List[int]]:
    """Outputs and draws of this rank's replica, when all have run on their rows of a batch."""
    own = map_tensors(rows.take, batch)
    rows.writes_data = True  # it may; and devices round differently

    def chunks_of(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
        return tensor.chunk(rows.replicas, rows.dim)

    def given(number: int) -> Any:
        def take(tensor: torch.Tensor) -> torch.Tensor:
            return chunks_of(tensor)[number].to(rows.device or tensor.device, copy=True)

        return own if number == dist.get_rank() else map_tensors(take, batch)

    most = rows.replicas if any(batch) else 1
    count = min([most, *(len(chunks_of(tensor)) for tensor in tensors_of(batch))])
    replicas = [make_replica(rows.state, copies, number) for number in range(count)]
    return run_in_turns(replicas, [*copies.values(), *rows.state.buffers()], given, wrapper.run_replica)


class WholeBatchInTurns(WholeBatch):
    """WholeBatch for a model whose forward or hooks may print, write lines, or fill lists, counters, objects.

    Every rank runs all replicas, one after another, so it has what each leaves there, as DataParallel's process has.
    Outputs and gradients are those of the replica of its number. Each forward takes the time of all replicas'.
    """

    stands_for_data_parallel = True
    run_replicas: Any = run_rows_in_turns


def run_in_turns(
    replicas: Sequence[Any],
    held: Sequence[torch.Tensor],
    given: Callable[[int], Any],
    run_own: Optional[Callable[..., Any]] = None,
) -> Tuple[Any, List[int]]:
    """Run all replicas of what holds these parameters and buffers; outputs and draws of this rank's.

    `given` gives the inputs of a replica, by position and by name. A rank that has none gets the outputs of the first
    one. As under DataParallel all run, and the first one's error is raised.
    """
    rank, errors = dist.get_rank(), []
    own_number = rank if rank < len(replicas) else 0
    before = {id(tensor): tensor.detach().clone() for tensor in held}
    states = get_device_states() if torch.cuda.is_available() else [None] * dist.get_world_size()
    result: Any = None
    for number, replica in enumerate(replicas):
        is_own = number == rank
        if rank or number:
            set_apart(replica, held, before if number else {}, is_own)
        Rank.device_stream = states[number]
        try:
            inputs, kwargs = given(number) if is_own else map_tensors(cut_off, given(number))
            with replica_draws(is_own, number) as drew:
                if run_own and number == own_number:
                    outputs = run_own(replica, is_own, inputs, kwargs)
                else:
                    outputs = replica(*inputs, **kwargs)
            result = (outputs, drew) if number == own_number else result
        except Exception as error:
            errors.append(error)
        states[number] = Rank.device_stream
    Rank.device_stream = states[rank]
    if errors:
        raise errors[0]
    return result


def set_apart(
    replica: Any, held: Sequence[torch.Tensor], before: Mapping[int, torch.Tensor], is_own: bool
) -> None:
    """Give a replica what it holds alone, as it was before the first one ran; without `before`, the module's own."""
    apart: Dict[int, torch.Tensor] = {}
    for tensor in held:
        numbers = before[id(tensor)].clone() if before else tensor
        is_learned = tensor.requires_grad and torch.is_grad_enabled()
        apart[id(tensor)] = Apart.apply(tensor, numbers.detach(), is_own) if is_learned else numbers
    for part in replica.modules():
        for name, each in [*{**vars(part), **part._buffers}.items()]:
            if id(each) in apart:
                setattr(part, name, apart[id(each)])


def cut_off(tensor: torch.Tensor) -> torch.Tensor:
    return Apart.apply(tensor, tensor.detach(), False) if tensor.requires_grad else tensor


class Apart(torch.autograd.Function):
    """A tensor with numbers of its own. Backward goes on behind it on every rank, with gradients on the owner's.

    Where there will be gradients of gradients, the others' are zeros, by which all ranks come to the same sums again.
    """

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, numbers: torch.Tensor, is_own: bool) -> torch.Tensor:
        ctx.is_own = is_own
        return numbers

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        others = gradient * 0 if torch.is_grad_enabled() else None
        return gradient if ctx.is_own else others, None, None
