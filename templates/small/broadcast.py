"""What ranks tell each other."""

import pickle
from typing import Any, List

import torch
import torch.distributed as dist


class Host:
    """The group for what lies on the host: gloo's, beside NCCL's for what lies on GPUs."""

    group: Any = None


def group_of(tensor: torch.Tensor) -> Any:
    return Host.group if tensor.device.type == "cpu" else None


def tell_all(news: Any = None, source: int = 0) -> Any:
    """One rank's news, rank 0's unless said otherwise, on every rank."""
    box = [news]
    dist.broadcast_object_list(box, source, Host.group)
    return box[0]


def exchange_numbers(numbers: List[int]) -> List[List[int]]:
    """The numbers of all ranks, in rank order; each rank brings as many."""
    own = torch.tensor([int(number) for number in numbers])
    each = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(each, own, Host.group)
    return [other.tolist() for other in each]


def sendable(value: Any, error: Any) -> Any:
    """A value and an error as they are, if they can be sent to other ranks; else an error that says so."""
    try:
        pickle.loads(pickle.dumps((value, error)))
        return value, error
    except Exception as reason:
        said = f"{type(error).__name__}: {error}" if error else f"cannot be sent to other ranks: {reason}"
        return None, RuntimeError(said)
