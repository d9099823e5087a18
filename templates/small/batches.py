"""Batches that rank 0 makes, and the other ranks of its node map."""

import os
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist

from .broadcast import exchange_numbers, tell_all
from .trees import map_tensors

SMALL = 2**16  # bytes of memory that go with the message


class Lent:
    """A large tensor of rank 0's, as other processes of the node can map it."""

    def __init__(self, memory: Tuple[int, int, int], tensor: torch.Tensor) -> None:
        self.memory = memory  # process, file descriptor, bytes
        self.dtype, self.place = tensor.dtype, (tensor.storage_offset(), tensor.shape, tensor.stride())

    def borrow(self, mapped: Dict[Any, Any]) -> torch.Tensor:
        """The same numbers in private pages: what this rank writes there, no other sees."""
        process, descriptor, size = self.memory
        if descriptor not in mapped:
            path = f"/proc/{process}/fd/{descriptor}"
            mapped[descriptor] = memory_of(torch.from_file(path, False, size, dtype=torch.uint8))
        return torch.empty(0, dtype=self.dtype).set_(mapped[descriptor], *self.place)


class Memory:
    """What rank 0 has lent. All ranks have mapped a batch when the next one is handed out."""

    descriptors: List[int] = []
    is_shared: Optional[bool] = None  # whether all ranks can map rank 0's: asked once, by doing it

    @classmethod
    def lend(cls, batch: Any) -> Any:
        """The batch with Lent in place of large tensors; views of one memory stay views of one."""
        while cls.descriptors:
            os.close(cls.descriptors.pop())
        memories: Dict[int, Tuple[int, int, int]] = {}

        def lend_tensor(tensor: torch.Tensor) -> Any:
            plain = (
                type(tensor) is torch.Tensor
                and tensor.layout == torch.strided
                and tensor.device.type == "cpu"
            )
            if not plain or tensor.requires_grad or memory_of(tensor).nbytes() <= SMALL:
                return tensor
            memory = memory_of(tensor)
            if memory.data_ptr() not in memories:
                descriptor, size = memory._share_fd_cpu_()
                cls.descriptors.append(os.dup(descriptor))
                memories[memory.data_ptr()] = os.getpid(), cls.descriptors[-1], size
            return Lent(memories[memory.data_ptr()], tensor)

        return map_tensors(lend_tensor, batch)


def memory_of(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()


def share_batch(batch: Any, news: Any) -> Any:
    """Rank 0's batch and news on all ranks; its large tensors by memory where all can map it, else by message."""
    if Memory.is_shared is None:
        Memory.is_shared = can_map_rank0()
    if dist.get_rank() == 0 and Memory.is_shared:
        batch = Memory.lend(batch)
    batch, news = tell_all((batch, news))
    mapped: Dict[int, Any] = {}
    return map_tensors(lambda tensor: tensor.borrow(mapped), batch, Lent), news


def can_map_rank0() -> bool:
    """Whether all ranks run on rank 0's machine, and may open what it has opened."""
    probe = torch.arange(SMALL)
    lent = None
    try:
        lent = Memory.lend(probe) if dist.get_rank() == 0 else None
    except RuntimeError:  # torch shares memory by names here, or the system knows no descriptors
        pass
    lent = tell_all(lent)
    try:
        same = isinstance(lent, Lent) and torch.equal(lent.borrow({}), probe)
    except (OSError, RuntimeError):
        same = False
    return all(answer for (answer,) in exchange_numbers([same]))
