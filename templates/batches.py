"""Rank 0's batches, as memory that the other ranks map."""

import os
import pickle
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from typing import Any, Dict

import torch
import torch.distributed as dist

from .broadcast import Rank, exchange_numbers
from .rank0 import ask_rank0

SMALL = 2**16  # bytes of memory that are copied into the message
SHORT = 2**12  # bytes of a message that is one exchange


class Lending:
    """Large memory of rank 0's last batch, which the other ranks map."""

    works: Any = None  # where all ranks are on one machine, and it runs Linux: they try it once
    memories: Dict[int, Any] = {}
    mapping: Any = None  # done when all ranks have mapped them


class Packer(ForkingPickler):
    """Packs a batch as the worker did that made it, but for its memory, which it lends, or copies if it is small."""

    def reducer_override(self, thing: Any) -> Any:
        if not isinstance(thing, torch.UntypedStorage):
            return NotImplemented
        first = Lending.memories.setdefault(thing.data_ptr(), thing)
        if first is not thing:  # until torch 2.1 tensors of one memory have their own names for it
            return itself, (first,)
        if Lending.works and thing.nbytes() > SMALL:
            descriptor, size = thing._share_fd_cpu_()  # a worker's batch is shared memory already
            return map_memory, (os.getpid(), descriptor, size)
        return copy_memory, (torch.empty(0, dtype=torch.uint8).set_(thing).numpy(),)


def itself(memory: Any) -> Any:
    return memory


def map_memory(process: int, descriptor: int, size: int) -> Any:
    """Another process's memory in private pages: what this rank writes there, no other sees."""
    return torch.UntypedStorage.from_file(f"/proc/{process}/fd/{descriptor}", False, size)


def copy_memory(content: Any) -> Any:
    return torch.UntypedStorage.from_buffer(content, dtype=torch.uint8)


def try_to_lend() -> None:
    """Find out whether all ranks can map what rank 0 has; else the whole batch goes into the message."""
    Lending.works, secret, is_mapped = True, os.urandom(SMALL + 1), False
    with suppress(OSError, RuntimeError):
        probe = torch.frombuffer(bytearray(secret), dtype=torch.uint8)
        message, secret = ask_rank0(lambda: (bytes(Packer.dumps(probe)), secret))
        is_mapped = pickle.loads(message).numpy().tobytes() == secret
    Lending.works = all(number for (number,) in exchange_numbers([is_mapped]))


def tell_bytes(message: bytes) -> Any:
    """Rank 0's message on all ranks, by one exchange if it is short. What lies behind it there, pickle leaves alone."""
    start = (len(message).to_bytes(8, "little") + message)[:SHORT].ljust(SHORT)
    with torch.inference_mode(False):  # in which torch 1.13 could not receive anything
        told = torch.frombuffer(bytearray(start), dtype=torch.uint8)
        dist.broadcast(told, 0, Rank.host)
        size = int(told[:8].view(torch.int64))
        if size > SHORT - 8:
            told = torch.frombuffer(bytearray(message or size), dtype=torch.uint8)
            dist.broadcast(told, 0, Rank.host)
            return told.numpy()
    return told[8:].numpy() if size else None
