"""Rank 0's batches, as memory that the other ranks map."""

import io
import os
import pickle
from contextlib import suppress
from typing import Any, Dict

import torch

from .broadcast import exchange_numbers
from .rank0 import ask_rank0

# bytes of memory that are copied into the message
SMALL = 2**16


class Lending:
    """Large memory of rank 0's last batch, which the other ranks map."""

    works: Any = None  # where all ranks are on one machine, and it runs Linux: they try it once
    memories: Dict[int, Any] = {}


class Memory:
    """What tensors of a batch lie in; views of one memory stay views of one."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage

    def __reduce__(self) -> Any:
        if Lending.works and self.storage.nbytes() > SMALL:
            descriptor, size = self.storage._share_fd_cpu_()  # a worker's batch is shared memory already
            return map_memory, (os.getpid(), descriptor, size)
        whole: Any = torch.empty(0, dtype=torch.uint8).set_(self.storage)
        return copy_memory, (pickle.PickleBuffer(whole.numpy()),)


def map_memory(process: int, descriptor: int, size: int) -> torch.Tensor:
    """Another process's memory in private pages: what this rank writes there, no other sees."""
    return torch.from_file(f"/proc/{process}/fd/{descriptor}", False, size, dtype=torch.uint8)


def copy_memory(content: bytearray) -> torch.Tensor:
    return torch.frombuffer(content, dtype=torch.uint8)


class Packer(pickle.Pickler):
    """A pickler that knows tensors, wherever they are: in a dict, or in an object of the script's."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, torch.storage.TypedStorage):
            storage: Any = thing._untyped_storage if hasattr(thing, "_untyped_storage") else thing._storage  # type: ignore[attr-defined]
            if storage.device.type == "cpu" and storage.nbytes() > 0:
                memory = Lending.memories.setdefault(storage.data_ptr(), Memory(storage))
                return storage_of, (memory, thing.dtype)
        return NotImplemented


def storage_of(memory: torch.Tensor, dtype: torch.dtype) -> Any:
    if not hasattr(memory, "untyped_storage"):  # until torch 2
        return torch.storage.TypedStorage(wrap_storage=memory.storage().untyped(), dtype=dtype)
    return torch.storage.TypedStorage(wrap_storage=memory.untyped_storage(), dtype=dtype, _internal=True)


def pack(batch: Any) -> bytes:
    """A batch as a message, for pickle.loads on every rank. The one before has been mapped: all have come to this."""
    Lending.memories, message = {}, io.BytesIO()
    Packer(message, protocol=5).dump(batch)
    return message.getvalue()


def try_to_lend() -> None:
    """Find out whether all ranks can map what rank 0 has; else the whole batch goes into the message."""
    Lending.works, secret, is_mapped = True, os.urandom(16), False
    with suppress(OSError, RuntimeError):
        probe = torch.frombuffer(bytearray(secret * SMALL), dtype=torch.uint8)
        content, secret = pickle.loads(ask_rank0(lambda: pack((probe, secret))))
        is_mapped = content[:16].numpy().tobytes() == secret
    Lending.works = all(number for (number,) in exchange_numbers([is_mapped]))
