"""What ranks tell each other."""

from typing import Any, List

import torch
import torch.distributed as dist


def tell_all(news: Any = None, source: int = 0) -> Any:
    """One rank's news, rank 0's unless said otherwise, on every rank."""
    box = [news]
    dist.broadcast_object_list(box, source)
    return box[0]


def exchange_numbers(numbers: List[int]) -> List[List[int]]:
    """The numbers of all ranks, in rank order; each rank brings as many."""
    own = torch.tensor([int(number) for number in numbers])
    each = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(each, own)
    return [other.tolist() for other in each]
