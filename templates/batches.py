"""Rank 0's batches, as memory that the other ranks map."""

import functools
import os
import pickle
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from typing import Any, Dict, Iterator, List, Tuple

import torch

from .broadcast import exchange_numbers
from .rank0 import ask_rank0
from .ranks import ranks_apart


class Packer(ForkingPickler):
    """Packs a batch as the worker did that made it; but large memory is lent, for private pages of each rank."""

    small = 2**16  # bytes of memory that are copied into the message
    lends: Any = None  # where all ranks are on one machine, and it runs Linux: they try it once
    memories: Dict[int, Any] = {}  # rank 0's last batch
    mapping: Any = None  # done when all ranks have mapped it

    def reducer_override(self, thing: Any) -> Any:
        if not isinstance(thing, torch.UntypedStorage):
            return NotImplemented
        first = self.memories.setdefault(thing.data_ptr(), thing)
        if first is not thing:  # until torch 2.1, each view of one memory has its own name for it
            return torch.UntypedStorage.cpu, (first,)  # where it is
        if self.lends and thing.nbytes() > self.small:
            descriptor, size = thing._share_fd_cpu_()  # a worker's batch is shared memory already
            return torch.UntypedStorage.from_file, (f"/proc/{os.getpid()}/fd/{descriptor}", False, size)
        content = torch.empty(0, dtype=torch.uint8).set_(thing).numpy()
        return functools.partial(torch.UntypedStorage.from_buffer, dtype=torch.uint8), (content,)


def pack_next(batches: Iterator[Any]) -> Tuple[bytes, List[Exception]]:
    """The next batch as a message, or an error."""
    let_go(Packer.mapping, Packer.memories)
    Packer.memories = {}
    try:
        with ranks_apart():
            return bytes(Packer.dumps(next(batches))), []
    except Exception as error:
        return b"", [error]


def let_go(mapping: Any, memories: Dict[int, Any]) -> None:
    """What was lent for a batch may go when all ranks have mapped it."""
    if mapping is not None:
        mapping.wait()
    memories.clear()


def try_to_lend() -> None:
    """Find out whether all ranks can map what rank 0 has; else the whole batch goes into the message."""
    Packer.lends, is_mapped = True, False
    probe = torch.frombuffer(bytearray(os.urandom(Packer.small + 1)), dtype=torch.uint8)
    with suppress(OSError, RuntimeError):
        message, probe = ask_rank0(lambda: (bytes(Packer.dumps(probe)), probe.clone()))
        is_mapped = torch.equal(pickle.loads(message), probe)
    Packer.lends = all(number for (number,) in exchange_numbers([is_mapped]))
