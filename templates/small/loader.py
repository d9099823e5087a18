"""Batches that rank 0 loads for all."""

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.data import DataLoader

from .broadcast import tell_all
from .ranks import ranks_apart, together
from .streams import host_streams, set_host_streams

SMALL = 2**16  # bytes of a tensor that go inside the message


class Lent:
    """A tensor of rank 0's, as another process of the node can map it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        fd, self.nbytes = storage._share_fd_cpu_()
        self.fd = os.dup(fd)
        self.form = tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()

    def borrow(self, pid: int) -> torch.Tensor:
        """The same numbers in private pages: what this rank writes there, no other sees."""
        memory = torch.from_file(
            f"/proc/{pid}/fd/{self.fd}", shared=False, size=self.nbytes, dtype=torch.uint8
        )
        return torch.empty(0, dtype=self.form[0]).set_(memory.untyped_storage(), *self.form[1:])


def is_lent(leaf: Any) -> bool:
    plain = type(leaf) is torch.Tensor and leaf.layout == torch.strided and leaf.device.type == "cpu"
    return plain and leaf.nbytes > SMALL and not leaf.requires_grad


class Rank0Loader(DataLoader):
    """A DataLoader whose workers rank 0 alone starts; all ranks get its batches. Without workers, all ranks make the same batches."""

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers == 0 or not together():
            return super().__iter__()
        batches = iter(())
        if dist.get_rank() == 0:
            with ranks_apart():
                batches = super().__iter__()
        set_host_streams(tell_all(host_streams()))
        return hand_out(
            batches,
            [
                each
                for each in (self.generator, *map(generator_of, (self.sampler, self.batch_sampler)))
                if each is not None
            ],
        )


def generator_of(sampler: Any) -> Any:
    own = getattr(sampler, "generator", None)
    return own if own is not None else getattr(getattr(sampler, "sampler", None), "generator", None)


def hand_out(batches: Iterator[Any], generators: list[Any]) -> Iterator[Any]:
    """Rank 0's batches, and its random numbers, on every rank of the node."""
    lent: list[Lent] = []
    while True:
        news = None
        if dist.get_rank() == 0:
            try:
                with ranks_apart():
                    batch, error = list(islice(batches, 1)), None
            except Exception as raised:
                batch, error = [], raised
            states = [generator.get_state() for generator in generators]
            news = (
                os.getpid(),
                tree_map(lambda leaf: Lent(leaf) if is_lent(leaf) else leaf, batch),
                host_streams(),
                states,
                error,
            )
        pid, batch, streams, states, error = tell_all(news)
        set_host_streams(streams)
        for generator, state in zip(generators, states):
            generator.set_state(state)
        if error is not None:
            raise error
        mine = tree_map_only(Lent, lambda leaf: leaf.borrow(pid), batch)
        for old in lent:
            os.close(old.fd)
        lent = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Lent)] if dist.get_rank() == 0 else []
        if not batch:
            return
        yield mine[0]
