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


def gather_tensors(tensor: torch.Tensor) -> List[torch.Tensor]:
    """The tensors of all ranks, in rank order; all have one shape."""
    with torch.inference_mode(False):  # in which torch 1.13 could not receive anything
        gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, tensor, group_of(tensor))
    return gathered


class CannotBeSent(RuntimeError):
    """Raised on all ranks; one that raised alone would leave the others waiting."""


def tell_all(news: Any = None, source: int = 0) -> Any:
    """One rank's news, rank 0's unless said otherwise, on every rank."""
    is_source, size = dist.get_rank() == source, torch.zeros(1, dtype=torch.int64)
    if is_source:
        try:
            packed = pickle.dumps(news, protocol=4)
        except Exception as reason:
            news = CannotBeSent(f"rank {source} cannot send this to the other ranks: {reason}")
            packed = pickle.dumps(news)
        size[0] = len(packed)
    dist.broadcast(size, source, Host.group)
    message = torch.frombuffer(bytearray(packed if is_source else int(size)), dtype=torch.uint8)
    dist.broadcast(message, source, Host.group)
    news = news if is_source else pickle.loads(message.numpy().tobytes())
    if isinstance(news, CannotBeSent):
        raise news
    return news


def exchange_numbers(numbers: List[int]) -> List[List[int]]:
    """The numbers of all ranks, in rank order; each rank brings as many."""
    own = torch.tensor([int(number) for number in numbers])
    return [each.tolist() for each in gather_tensors(own)]
