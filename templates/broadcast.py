"""What ranks tell each other."""

import pickle
from typing import Any, List

import torch
import torch.distributed as dist


class Rank:
    """This process among the ranks."""

    host: Any = None  # the group for what lies on the host: gloo's, beside NCCL's for what lies on GPUs
    make_whole: Any = None  # for what rank 0 does alone: outputs that lie in parts on all ranks
    before_forward: Any = None  # shares what is trained outside of the model
    before_meeting: Any = None  # asks whether a backward has failed, in a script that catches errors
    device_stream: Any = None  # random numbers of device r, from which replica r draws on rank r > 0
    is_alone = False  # while rank 0 does something that the others do not
    process = 0  # its number, while there are ranks; workers of loaders and pools have others


def group_of(tensor: torch.Tensor) -> Any:
    return Rank.host if tensor.is_cpu else None


def gather_tensors(tensor: torch.Tensor) -> List[torch.Tensor]:
    """The tensors of all ranks, in rank order; all have one shape."""
    with torch.inference_mode(False):  # in which torch 1.13 could not receive anything
        gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, tensor, group_of(tensor))
    return gathered


def exchange_numbers(numbers: List[int]) -> List[List[int]]:
    """The numbers of all ranks, in rank order; each rank brings as many."""
    own = torch.tensor([int(number) for number in numbers])
    return [each.tolist() for each in gather_tensors(own)]


def tell_all(news: Any = None, source: int = 0) -> Any:
    """One rank's news, rank 0's unless said otherwise, on every rank."""
    is_source, message = dist.get_rank() == source, [b"", ""]
    if is_source:
        try:
            message[0] = pickle.dumps(news)
        except Exception as reason:  # raised here alone, it would leave the others waiting
            message[1] = f"rank {source} cannot send this to the other ranks: {reason}"
    dist.broadcast_object_list(message, source, Rank.host)
    if message[1]:
        raise RuntimeError(message[1])
    return news if is_source else pickle.loads(message[0])  # type: ignore[arg-type]
