"""What rank 0 has, on all ranks: by message to each node's first rank, as memory that the others of the node map."""

import io
import os
import pickle
from contextlib import suppress
from datetime import timedelta
from typing import Any, Dict, List, NamedTuple, Optional

import torch
import torch.distributed as dist

from .broadcast import CannotBeSent, Host, exchange_numbers

SMALL = 2**16  # bytes of memory that are copied into a message


class Way(NamedTuple):
    """From one rank to the others of a group."""

    source: int
    group: Any
    lends: bool  # memory is mapped, not copied


class Sharing:
    """How rank 0's news come to this rank, and go on from it."""

    ways: Optional[List[Way]] = None  # asked once
    lent: List[Any] = []  # memory that the others may be about to map


class LentMemory:
    """What a tensor's numbers lie in, as it goes into a message."""

    def __init__(self, storage: Any, lends: bool) -> None:
        self.is_lent = lends and storage.nbytes() > SMALL
        self.is_workers = self.is_lent and storage.is_shared()  # who has filled it does not write to it again
        self.storage = storage.clone() if self.is_lent and not self.is_workers else storage

    def __reduce__(self) -> Any:
        if self.is_lent:
            descriptor, size = self.storage._share_fd_cpu_()
            return map_memory, (os.getpid(), descriptor, size)
        whole: Any = torch.empty(0, dtype=torch.uint8).set_(self.storage)
        return copy_memory, (pickle.PickleBuffer(whole.numpy()),)


class Packer(pickle.Pickler):
    """A pickler that knows tensors, wherever they are: in a dict, or in an object of the script's."""

    def __init__(self, file: Any, lends: bool) -> None:
        super().__init__(file, protocol=5)
        self.lends = lends
        self.memories: Dict[int, LentMemory] = {}

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, torch.storage.TypedStorage):
            storage = thing._untyped_storage if hasattr(thing, "_untyped_storage") else thing._storage  # type: ignore[attr-defined]
            if storage.device.type == "cpu" and storage.nbytes() > 0:
                place = storage.data_ptr()
                if place not in self.memories:  # views of one memory stay views of one
                    self.memories[place] = LentMemory(storage, self.lends)
                return with_type, (self.memories[place], thing.dtype)
        return NotImplemented


def map_memory(process: int, descriptor: int, size: int) -> Any:
    """Another process's memory in private pages: what this rank writes there, no other sees."""
    path = f"/proc/{process}/fd/{descriptor}"
    return memory_of(torch.from_file(path, False, size, dtype=torch.uint8))


def copy_memory(content: bytearray) -> Any:
    return memory_of(torch.frombuffer(content, dtype=torch.uint8))


def memory_of(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()


def with_type(memory: Any, dtype: torch.dtype) -> Any:
    quietly = {"_internal": True} if hasattr(torch.Tensor, "untyped_storage") else {}
    return torch.storage.TypedStorage(wrap_storage=memory, dtype=dtype, **quietly)


def share_batch(news: Any) -> Any:
    """Rank 0's news on all ranks."""
    if Sharing.ways is None:
        Sharing.ways = find_ways()
    for way in Sharing.ways:
        news = pass_on(news, way)
    if isinstance(news, CannotBeSent):
        raise news
    return news


def pass_on(news: Any, way: Way) -> Any:
    """One rank's news on all ranks of a group."""
    message, is_source = io.BytesIO(), way.source == dist.get_rank()
    packer = Packer(message, way.lends)
    if is_source:
        try:
            packer.dump(news)
        except Exception as reason:
            news = CannotBeSent(f"rank 0 cannot send this to the other ranks: {reason}")
            message = io.BytesIO(pickle.dumps(news))
    size = torch.tensor([len(message.getbuffer())])
    dist.all_reduce(size, group=way.group)  # who comes here has mapped what was lent before
    content: Any = torch.frombuffer(
        message.getbuffer() if is_source else bytearray(int(size)), dtype=torch.uint8
    )
    dist.broadcast(content, way.source, way.group)
    if not is_source:
        return pickle.loads(content.numpy())
    lent = [memory for memory in packer.memories.values() if memory.is_lent]
    if way.lends:
        Sharing.lent = lent
    is_seen = any(memory.is_workers for memory in lent)  # others would see what this rank writes
    return pickle.loads(content.numpy()) if is_seen else news


def find_ways() -> List[Way]:
    """Ranks that can map each other's memory are of one node: they try it."""
    own, world = dist.get_rank(), dist.get_world_size()
    secret, lent = os.urandom(16), b""
    memory = LentMemory(copy_memory(bytearray(secret * SMALL)), True)
    with suppress(RuntimeError):  # raised where the system has no such descriptors
        lent = pickle.dumps(memory)
    all_lent: List[Any] = [None] * world
    dist.all_gather_object(all_lent, (secret, lent), Host.group)
    first = next(rank for rank in range(world) if rank == own or can_map(*all_lent[rank]))
    firsts = [number for (number,) in exchange_numbers([first])]
    plans = [(0, sorted(set(firsts)), False)]
    plans += [
        (first, [rank for rank in range(world) if firsts[rank] == first], True) for first in plans[0][1]
    ]
    ways = []
    for source, members, lends in plans:
        if len(members) > 1:
            group = dist.new_group(members, timedelta(hours=2), "gloo")  # all ranks come here
            ways += [Way(source, group, lends)] if own in members else []
    return ways


def can_map(secret: bytes, lent: bytes) -> bool:
    try:
        whole: Any = torch.empty(0, dtype=torch.uint8).set_(pickle.loads(lent))
    except (OSError, RuntimeError, EOFError):
        return False
    return whole[: len(secret)].numpy().tobytes() == secret
