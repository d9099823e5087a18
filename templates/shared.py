"""Batches that are made once: rank 0 makes each, as one process would have, and the other ranks map its memory."""

import ctypes
import errno
import functools
import io
import mmap
import os
import pickle
import secrets
import socket
import struct
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed
import torch.multiprocessing
from torch.utils.data import DataLoader
from torch.utils.data._utils import pin_memory

from .loader_state import LoaderState
from .parted import part_whole, partable_in
from .process import (
    TIMEOUT,
    all_ranks_are_here,
    exchange,
    own_rank,
    random_streams,
    set_random_streams,
    world_size,
)
from .rank_zero_output import as_exception, attempt, sendable
from .replicas import changed_streams, stream_marks

# Bytes of tensors that travel inside a message; what is more is mapped.
SMALL_BATCH = 1 << 16

# Bytes up to which a storage travels inside even if others are mapped: to copy it costs less.
SMALL_STORAGE = 1 << 14

# How many storages of workers are handed on each by a descriptor of its own; more are copied together into one file.
MOST_HANDLES = 16

# Bytes that the system is asked to read or write at once, at most.
PORTION = 1 << 30

# Files that batches of rank 0's own process were written to; again when nobody has the batch any more, since memory
# that is fresh takes four times as long to write to. So many at most.
WRITTEN_FILES: list[int] = []
MOST_WRITTEN = 4

# Seconds in which who has connected must have said who it is; a rank says it at once.
CALLER_TIMEOUT = 30

# Storages begin in a file at multiples of this many bytes.
ALIGNED = 64


def share(make: "Callable[..., DataLoader[Any]]", *args: Any, **kwargs: Any) -> "DataLoader[Any]":
    """The loader that make(*args, **kwargs) gives; rank 0 alone iterates it, and every rank gets its batches.

    Rank 0's workers, samplers, seeds and order are those of one process without ranks. On a node a batch lies in
    memory once: the other ranks map it, and what a rank writes into it no other sees. An error and the end of the
    data come to all ranks alike; so do the script's random streams, and numbers and generators that loading
    changes in the loader, its samplers and its data set. In everything else (len, dataset, sampler) each rank's
    loader answers itself. On rank 0 alone, in child processes and in threads it is a loader as any other.
    """
    if world_size() == 1:
        return as_shared(make(*args, **kwargs))
    made, error = make_on_all_ranks(lambda: make(*args, **kwargs))
    if error is not None:
        raise error
    if isinstance(made, DataLoader) and type(made).__init__ is not DataLoader.__init__:
        set_random_streams(exchange(random_streams())[0])  # it may have begun to iterate
    return as_shared(made)


def make_on_all_ranks(make: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """Make a loader; on ranks > 0 one that begins to iterate while it is made starts no workers."""
    own = DataLoader._get_iterator
    if own_rank() > 0:
        setattr(DataLoader, "_get_iterator", lambda loader: iter(()))  # noqa: B010
    try:
        return make(), None
    except Exception as raised:
        return None, raised
    finally:
        setattr(DataLoader, "_get_iterator", own)  # noqa: B010


def as_shared(loader: Any) -> Any:
    """The same object, of a class that is derived from its own and iterates on rank 0."""
    if isinstance(loader, DataLoader) and not hasattr(loader, "plain_class"):
        loader.__class__ = shared_class(type(loader))
    return loader


def shared_class(kind: Any) -> Any:
    """A class of loaders in all but how it iterates."""

    class SharedLoader(kind):  # type: ignore[misc]
        plain_class = kind
        __doc__ = kind.__doc__

        def __iter__(self) -> Any:
            return SharedBatches(self) if all_ranks_are_here() else super().__iter__()

        def __reduce__(self) -> Any:  # a copy, as another process gets it, is a loader as any other
            return copy_of_loader, (kind, dict(vars(self)))

    SharedLoader.__name__, SharedLoader.__qualname__ = kind.__name__, kind.__qualname__
    SharedLoader.__module__ = kind.__module__
    return SharedLoader


def copy_of_loader(kind: Any, settings: dict[str, Any]) -> Any:
    """A loader with another's settings."""
    made = kind.__new__(kind)
    vars(made).update(settings)
    return made


class SharedBatches:
    """One pass over a shared loader, which rank 0 makes."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.loader_state = LoaderState(loader)
        self.pins = loader.pin_memory and torch.cuda.is_available()
        self.batches: Any = None
        self.from_rank_zero(self.begin)

    def begin(self) -> None:
        """On rank 0: torch's own iterator. Its batches stay where the workers put them: each rank pins its own."""
        settings = vars(self.loader)
        pins = settings["pin_memory"]
        settings["pin_memory"] = pins and not self.pins
        try:
            self.batches = self.loader.plain_class.__iter__(self.loader)
        finally:
            settings["pin_memory"] = pins

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> "SharedBatches":
        return self

    def __next__(self) -> Any:
        if all_ranks_are_here():
            batch = self.from_rank_zero(lambda: next(self.batches))
        else:
            if self.batches is None:
                self.begin()
            batch = next(self.batches)
        return pin_memory.pin_memory(batch) if self.pins else batch

    def _shutdown_workers(self) -> None:
        """For scripts that end the workers themselves; ranks > 0 have none."""
        if hasattr(self.batches, "_shutdown_workers"):
            self.batches._shutdown_workers()

    def from_rank_zero(self, work: Callable[[], Any]) -> Any:
        """What rank 0 gets by this work, or its exception, on every rank; what it leaves behind, too.

        Of large tensors each rank gets its rows.
        """
        line = SocketLine.between_ranks()
        if line.rank > 0:
            value, which, error, streams, left = line.receive()
            set_random_streams(streams)
            self.loader_state.set(left)
            if error is not None:
                raise_alike(as_exception(error))
            return part_whole(value, which)
        streams, marks = stream_marks(), self.loader_state.marks()
        value, error = attempt(work)
        moved = changed_streams(stream_marks(), streams)
        left = self.loader_state.changed_since(marks)
        which = partable_in(value)
        news = which, None if error is None else sendable(error), random_streams(moved) if moved else {}, left
        value = line.send(value, news, self.loader.num_workers > 0)
        if error is not None:
            forget_written_files()
            raise_alike(error)
        return part_whole(value, which)


def raise_alike(error: BaseException) -> None:
    """Raise it, and hold on to nothing: torch is 5 s late to end a worker in a cycle."""
    try:
        raise error
    finally:
        del error


class SocketLine:
    """The way that batches go: from rank 0 to the first rank of each node, and from there to the node's others.

    On a node descriptors of memory go over Unix sockets without names in the file system: when the processes are
    gone, however they went, nothing is left of either.
    """

    made: "SocketLine | None" = None

    @classmethod
    def between_ranks(cls) -> "SocketLine":
        """The only one; all ranks come here together when it is made."""
        if cls.made is None:
            cls.made = cls()
        return cls.made

    def __init__(self) -> None:
        self.rank = own_rank()
        door = listen_for_ranks()
        places = exchange((node_of_rank(self.rank), *door[1:]))
        node = [rank for rank, place in enumerate(places) if place[0] == places[self.rank][0]]
        firsts = sorted({place: rank for rank, (place, *_) in reversed([*enumerate(places)])}.values())
        self.is_first = self.rank == node[0]
        self.leaders = torch.distributed.new_group(firsts, backend="gloo") if len(firsts) > 1 else None
        if self.is_first:
            self.sockets = dict(accept_ranks(door, len(node) - 1))
        else:
            self.sockets = {node[0]: connect_to_rank(places[node[0]][1:], self.rank)}
        if door[0] is not None:
            door[0].close()

    def send(self, value: Any, rest: tuple[Any, ...], by_workers: bool) -> Any:
        """From rank 0: a value and what goes with it. Returns the value as rank 0 itself is to use it."""
        try:
            packed = pack_batch((value, *rest), by_workers)
        except Exception as error:
            text = f"rank 0 cannot hand this batch on: {type(error).__name__}: {error}"
            packed = pack_batch((None, rest[0], TypeError(text), *rest[2:]), by_workers)
            self.pass_on(packed)
            raise TypeError(text) from error
        self.pass_on(packed)
        return (
            value if packed.lent is None else unpack_batch(packed)[0]
        )  # or others would see what is written

    def pass_on(self, packed: "Packed") -> None:
        """To the first ranks of the other nodes, and to the others of this one."""
        if self.leaders is not None and self.rank == 0:
            send_to_nodes(packed, self.leaders)
        content = pickle.dumps((packed.message, packed.places, bytes(packed.inside)), protocol=5)
        for rank, connection in self.sockets.items():
            try:
                send_with_files(connection, content, packed.files)
            except OSError as error:
                raise RuntimeError(f"rank {rank} has ended, and gets no more batches ({error})") from error
        packed.close()

    def receive(self) -> Any:
        """On ranks > 0: what rank 0 sends."""
        if self.is_first:
            packed = receive_on_node(self.leaders)
            batch = unpack_batch(packed)
            self.pass_on(packed)
            return batch
        (connection,) = self.sockets.values()
        try:
            packed = receive_packed(connection)
        except (EOFError, ConnectionError):
            raise RuntimeError("the rank that makes the batches has ended") from None
        try:
            return unpack_batch(packed)
        finally:
            packed.close()


def node_of_rank(rank: int) -> Any:
    """What ranks that can hand descriptors to each other have in common; else each is for itself."""
    try:
        if not hasattr(os, "memfd_create") or not hasattr(socket, "send_fds"):
            return rank
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(), os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return rank


def listen_for_ranks() -> tuple[Any, str, bytes]:
    """A socket that listens in Linux's abstract namespace, its name, and the word that opens."""
    name, word = f"\0batches-{secrets.token_hex(16)}", secrets.token_bytes(32)
    try:
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        door.bind(name)
    except (AttributeError, OSError):  # not Linux: node_of_rank has put each rank on a node of its own
        return None, name, word
    door.listen(socket.SOMAXCONN)
    door.settimeout(TIMEOUT.total_seconds())
    return door, name, word


def accept_ranks(door: tuple[Any, str, bytes], count: int) -> list[tuple[int, socket.socket]]:
    """So many ranks that know the word, each with its number. Anybody on the machine may knock."""
    accepted: list[tuple[int, socket.socket]] = []
    while len(accepted) < count:
        connection, _ = door[0].accept()
        said = word_of_caller(connection)
        if secrets.compare_digest(said[:32], door[2]):
            connection.settimeout(TIMEOUT.total_seconds())
            accepted.append((int.from_bytes(said[32:], "little"), connection))
        else:
            connection.close()
    return sorted(accepted)


def word_of_caller(connection: socket.socket) -> bytes:
    """What a process of the same user says at once; nothing of others, or if it breaks off."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    connection.settimeout(CALLER_TIMEOUT)
    try:
        return bytes(receive_exactly(connection, 40)) if user == os.geteuid() else b""
    except (EOFError, OSError):
        return b""


def connect_to_rank(door: tuple[str, bytes], rank: int) -> socket.socket:
    """A connection to the first rank of the node."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(TIMEOUT.total_seconds())
    connection.connect(door[0])
    connection.sendall(door[1] + rank.to_bytes(8, "little"))
    return connection


class Packed:
    """A value's pickle, and where its storages lie: of each the file (-1: inside), its first byte, its bytes."""

    def __init__(
        self,
        message: bytes,
        places: Sequence[tuple[int, int, int]],
        inside: Any = b"",
        files: Sequence[int] = (),
    ) -> None:
        self.message, self.places, self.inside = message, places, inside
        self.files = files  # descriptors, to be closed when they are no longer needed
        self.lent: Any = None  # storages that the descriptors belong to: then they are not closed

    def sizes(self) -> list[int]:
        """The bytes that matter, for each file."""
        return [max(b + n for f, b, n in self.places if f == file) for file in range(len(self.files))]

    def close(self) -> None:
        """The descriptors are no longer needed; what is mapped stays."""
        if self.lent is None:
            for file in self.files:
                os.close(file)


def pack_batch(value: Any, by_workers: bool) -> Packed:
    """The value's pickle, and its storages: handed on if workers have made them in shared memory, or copied once."""
    message, storages, viewed = pickle_batch(value, frozenset())
    if by_workers and may_be_handed_on(storages):
        return hand_storages_on(message, storages)
    loose = {
        storage._cdata
        for storage in storages
        if storage.nbytes() > max(SMALL_BATCH, 2 * viewed.get(storage._cdata, storage.nbytes()))
    }
    if loose:  # rows of a large tensor go without the rest of it
        message, storages, _ = pickle_batch(value, frozenset(loose))
    return copy_storages(message, storages)


def may_be_handed_on(storages: "Sequence[torch.UntypedStorage]") -> bool:
    """Whether those that are not small lie in shared memory that has a descriptor, and the small ones are few."""
    large = [storage for storage in storages if storage.nbytes() > SMALL_STORAGE]
    bytes_of_large = sum(storage.nbytes() for storage in large)
    return (
        torch.multiprocessing.get_sharing_strategy() == "file_descriptor"
        and len(large) <= MOST_HANDLES
        and bytes_of_large > SMALL_BATCH >= sum(storage.nbytes() for storage in storages) - bytes_of_large
        and all(storage.is_shared() for storage in large)
    )


def hand_storages_on(message: bytes, storages: "Sequence[torch.UntypedStorage]") -> Packed:
    """By the descriptors that they have; small ones inside the message."""
    small = [storage for storage in storages if storage.nbytes() <= SMALL_STORAGE]
    packed = copy_inside(message, small)
    packed.lent = [storage for storage in storages if storage.nbytes() > SMALL_STORAGE]
    packed.files = [storage._share_fd_cpu_()[0] for storage in packed.lent]
    inside, numbers = iter(packed.places), iter(range(len(packed.files)))
    packed.places = [
        next(inside) if storage.nbytes() <= SMALL_STORAGE else (next(numbers), 0, storage.nbytes())
        for storage in storages
    ]
    return packed


def copy_storages(message: bytes, storages: "Sequence[torch.UntypedStorage]") -> Packed:
    """Inside the message if they are small, in one file without a name if not."""
    begins, end = laid_out(storages)
    file = file_for_batch(end) if end > SMALL_BATCH else None
    if file is None:
        return copy_inside(message, storages)
    for begin, storage in zip(begins, storages, strict=True):
        write_at(file, begin, bytes_of_storage(storage))
    places = [(0, begin, storage.nbytes()) for begin, storage in zip(begins, storages, strict=True)]
    return Packed(message, places, b"", [file])


def copy_inside(message: bytes, storages: "Sequence[torch.UntypedStorage]") -> Packed:
    """In bytes that travel with the message."""
    begins, end = laid_out(storages)
    inside = bytearray(end)
    for begin, storage in zip(begins, storages, strict=True):
        inside[begin : begin + storage.nbytes()] = bytes_of_storage(storage)
    places = [(-1, begin, storage.nbytes()) for begin, storage in zip(begins, storages, strict=True)]
    return Packed(message, places, inside)


def laid_out(storages: "Sequence[torch.UntypedStorage]") -> tuple[list[int], int]:
    """Where each storage begins, one behind the other; and where the last one ends."""
    begins, end = [], 0
    for storage in storages:
        begins.append(end)
        end += -(-storage.nbytes() // ALIGNED) * ALIGNED
    return begins, end


def file_in_memory(size: int) -> int | None:
    """The descriptor of a new file of this size that lies in memory and has no name; None if there can be none."""
    try:
        file = os.memfd_create("batch")
    except (AttributeError, OSError):  # not Linux; no descriptors left
        return None
    os.ftruncate(file, size)
    return file


def file_for_batch(size: int) -> int | None:
    """The descriptor of a file of at least this size that nobody looks at; None if there can be none."""
    try:
        kept = next(filter(is_free, WRITTEN_FILES), None) if leases_tell() else None
        if kept is None:
            return new_file_for_batch(size)
        if os.fstat(kept).st_size < size:
            os.ftruncate(kept, size)
        return open_again(kept)
    except OSError:  # no descriptors left
        return None


def new_file_for_batch(size: int) -> int | None:
    """The same of a new file, which is kept where it can be told whether it is free."""
    made = file_in_memory(size)
    if made is None or not leases_tell():
        return made
    try:  # what memfd_create itself has opened is not counted
        WRITTEN_FILES.append(open_again(made))
        if len(WRITTEN_FILES) > MOST_WRITTEN:
            os.close(WRITTEN_FILES.pop(0))
        return open_again(made)
    finally:
        os.close(made)


def forget_written_files() -> None:
    """The pass is over: what nobody has mapped is given back."""
    while WRITTEN_FILES:
        os.close(WRITTEN_FILES.pop())


def open_again(file: int) -> int:
    """A file once more, not its descriptor only: so that the system counts it, also in a message and when mapped."""
    return os.open(f"/proc/self/fd/{file}", os.O_RDWR)


def is_free(file: int) -> bool:
    """Whether nobody else has the file open to write or has mapped it: a lease is given to no other (man 2 fcntl).

    Children that were forked with a batch count, too, and so does a message that nobody has read yet.
    """
    import fcntl  # not on Windows

    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return False
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


@functools.cache
def leases_tell() -> bool:
    """Whether leases are to be had and tell that somebody has a file: tried on one."""
    try:
        made = os.memfd_create("batch")
        os.ftruncate(made, 1)
        kept, other = open_again(made), open_again(made)
        os.close(made)
        free = [is_free(kept)]
        memory = [mapped(other, 1)]
        os.close(other)
        free.append(is_free(kept))
        memory.clear()
        free.append(is_free(kept))
        os.close(kept)
    except (AttributeError, ImportError, OSError):
        return False
    return free == [False, False, True]


def write_at(descriptor: int, begin: int, content: memoryview) -> None:
    """All of it, in as many calls as the system wants."""
    while len(content):
        written = os.pwrite(descriptor, content[:PORTION], begin)
        begin, content = begin + written, content[written:]


def bytes_of_storage(storage: "torch.UntypedStorage") -> memoryview:
    """A storage's bytes, which live as long as somebody looks at them."""
    size = storage.nbytes()
    if size == 0:
        return memoryview(b"")
    memory: Any = (ctypes.c_ubyte * size).from_address(storage.data_ptr())
    memory.storage = storage
    return memoryview(memory).cast("B")


def pickle_batch(
    value: Any, loose: "frozenset[int]"
) -> "tuple[bytes, list[torch.UntypedStorage], dict[int, int]]":
    """The value without the memory of its tensors; their storages; of each how many bytes tensors look at."""
    written = io.BytesIO()
    pickler = BatchPickler(written, loose)
    pickler.dump(value)
    return written.getvalue(), pickler.storages, pickler.viewed


class BatchPickler(pickle.Pickler):
    """Writes numbers in place of storages, as torch.save does: tensors that share one share it afterwards."""

    def __init__(self, file: io.BytesIO, loose: "frozenset[int]") -> None:
        super().__init__(file, protocol=5)
        self.loose = loose
        self.storages: list[torch.UntypedStorage] = []
        self.numbers: dict[int, int] = {}
        self.viewed: dict[int, int] = {}

    def number_of(self, storage: "torch.UntypedStorage") -> int:
        number = self.numbers.setdefault(storage._cdata, len(self.storages))
        if number == len(self.storages):
            self.storages.append(storage)
        return number

    # not persistent_id, which is asked for each number and text
    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, torch.Tensor):
            return self.reduce_tensor(thing)
        if isinstance(thing, torch.storage.TypedStorage) and thing._untyped_storage.device.type == "cpu":
            return typed_storage_at, (self.number_of(thing._untyped_storage), thing.dtype)
        if isinstance(thing, torch.UntypedStorage) and thing.device.type == "cpu":
            return storage_at, (self.number_of(thing),)
        return NotImplemented

    def reduce_tensor(self, tensor: torch.Tensor) -> Any:
        if tensor.layout != torch.strided:
            return NotImplemented
        if tensor.device.type == "cuda":
            return to_device_of_rank, (tensor.detach().cpu(), tensor.requires_grad)
        if tensor.device.type != "cpu" or type(tensor) is not torch.Tensor:
            return NotImplemented
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.loose and not (tensor.requires_grad and not tensor.is_leaf):
            return tensor.detach().clone().requires_grad_(tensor.requires_grad).__reduce_ex__(5)
        self.viewed[key] = self.viewed.get(key, 0) + tensor.nbytes
        if not is_only_numbers(tensor):
            return NotImplemented
        place = self.number_of(storage), tensor.dtype, tensor.storage_offset()
        return tensor_at, (*place, tuple(tensor.shape), tensor.stride())


def is_only_numbers(tensor: Any) -> bool:
    """Whether a tensor is numbers in places, and nothing else is to be told of it."""
    more = tensor.requires_grad, tensor.is_quantized, tensor.is_conj(), tensor.is_neg(), vars(tensor)
    return not any(more) and not any(getattr(tensor, "names", ()))  # which torch 2.15 has no more


def storage_at(storages: "Sequence[torch.UntypedStorage]", number: int) -> "torch.UntypedStorage":
    """The storage of this number."""
    return storages[number]


def typed_storage_at(storages: "Sequence[torch.UntypedStorage]", number: int, dtype: torch.dtype) -> Any:
    """The same, as torch's own pickles want it."""
    return torch.storage.TypedStorage(wrap_storage=storages[number], dtype=dtype, _internal=True)


def tensor_at(
    storages: "Sequence[torch.UntypedStorage]",
    number: int,
    dtype: torch.dtype,
    *place: Any,
) -> torch.Tensor:
    """A tensor that lies in a storage at a place: its first element, its shape, its strides."""
    return torch.empty(0, dtype=dtype, device="cpu").set_(storages[number], *place)


def to_device_of_rank(tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """What lay on rank 0's GPU, on this rank's."""
    return tensor.cuda().requires_grad_(requires_grad)


class BatchUnpickler(pickle.Unpickler):
    """Reads numbers as storages."""

    def __init__(self, message: bytes, storages: "Sequence[torch.UntypedStorage]") -> None:
        super().__init__(io.BytesIO(message))
        self.storages = storages

    def find_class(self, module: str, name: str) -> Any:
        meant = super().find_class(module, name)
        takes_storages = meant is tensor_at or meant is storage_at or meant is typed_storage_at
        return functools.partial(meant, self.storages) if takes_storages else meant


def unpack_batch(packed: Packed) -> Any:
    """The value. What a rank writes into mapped memory becomes its own, page by page: no other rank sees it."""
    files = [mapped(file, n) for file, n in zip(packed.files, packed.sizes(), strict=True)]
    storages = [
        piece_of(files[file], begin, size)
        if file >= 0
        else piece_of(packed.inside[begin : begin + size], 0, size)
        for file, begin, size in packed.places
    ]
    return BatchUnpickler(packed.message, storages).load()


def mapped(file: int, size: int, shared: bool = False) -> memoryview:
    """A file's memory: the file's own, or as it is now for this process alone. The descriptor may be closed.

    The system's own call, since Python's mmap keeps a descriptor open, and torch's opens the file once more to read.
    """
    kind = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
    map_memory, unmap_memory = calls_for_memory()
    address = map_memory(None, size, mmap.PROT_READ | mmap.PROT_WRITE, kind, file, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "a batch cannot be mapped")
    memory = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(memory, unmap_memory, address, size).atexit = False  # tensors may be there longer
    return memoryview(memory).cast("B")


@functools.cache
def calls_for_memory() -> tuple[Any, Any]:
    """mmap and munmap of the C library."""
    library = ctypes.CDLL(None, use_errno=True)
    map_memory, unmap_memory = library.mmap, library.munmap
    map_memory.restype = ctypes.c_void_p
    place = ctypes.c_void_p, ctypes.c_size_t
    map_memory.argtypes = [*place, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    unmap_memory.argtypes = [*place]
    return map_memory, unmap_memory


def piece_of(memory: Any, begin: int, size: int) -> "torch.UntypedStorage":
    """Some of the bytes, as a storage of their own."""
    if size == 0:
        return torch.UntypedStorage(0)
    return torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=begin).untyped_storage()


def send_with_files(way: socket.socket, content: bytes, files: Sequence[int]) -> None:
    """Over a Unix socket, at once: the other end is woken once."""
    head = len(content).to_bytes(8, "little") + len(files).to_bytes(8, "little")
    whole = memoryview(head + content)
    way.sendall(whole[socket.send_fds(way, [whole], files) :])


def receive_packed(way: socket.socket) -> Packed:
    """From a Unix socket; EOFError if the other end is gone."""
    head, files, _, _ = socket.recv_fds(way, 16, MOST_HANDLES)
    head += receive_exactly(way, 16 - len(head))
    length, count = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
    message, places, inside = pickle.loads(receive_exactly(way, length))
    if len(files) < count:
        raise OSError(errno.EMFILE, "a batch came without its memory: too many open files (ulimit -n)")
    return Packed(message, places, bytearray(inside), files)


def receive_exactly(way: socket.socket, count: int) -> bytearray:
    """So many bytes; EOFError if the other end is gone before."""
    received = bytearray(count)
    left = memoryview(received)
    while len(left):
        got = way.recv_into(left[:PORTION])
        if got == 0:
            raise EOFError
        left = left[got:]
    return received


def send_to_nodes(packed: Packed, leaders: Any) -> None:
    """From rank 0 to the first rank of each node: the message, then the files."""
    head = pickle.dumps((packed.message, packed.places, bytes(packed.inside), packed.sizes()), protocol=5)
    broadcast_bytes(torch.frombuffer(bytearray(len(head).to_bytes(8, "little")), dtype=torch.uint8), leaders)
    broadcast_bytes(torch.frombuffer(bytearray(head), dtype=torch.uint8), leaders)
    for file, size in zip(packed.files, packed.sizes(), strict=True):
        broadcast_bytes(torch.frombuffer(mapped(file, size), dtype=torch.uint8), leaders)


def receive_on_node(leaders: Any) -> Packed:
    """What rank 0 sends, on the first rank of another node."""
    length = broadcast_bytes(torch.zeros(8, dtype=torch.uint8), leaders)
    head = broadcast_bytes(torch.zeros(int.from_bytes(length, "little"), dtype=torch.uint8), leaders)
    message, places, inside, sizes = pickle.loads(head)
    files = [file for file in map(file_in_memory, sizes) if file is not None]
    for file, size in zip(files, sizes, strict=True):
        broadcast_bytes(torch.frombuffer(mapped(file, size, shared=True), dtype=torch.uint8), leaders)
    return Packed(message, places, bytearray(inside), files)


def broadcast_bytes(place: torch.Tensor, group: Any) -> bytes | memoryview:
    """Rank 0's bytes into this tensor on every rank of the group."""
    torch.distributed.broadcast(place, 0, group=group)
    return bytes_of_storage(place.untyped_storage())
