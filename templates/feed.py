"""Data that one rank reads for all: generators, queues and streams that ranks could not each read alike."""

import io
import pickle
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed

from .process import FRAME, own_rank, random_streams, set_random_streams, world_size
from .replicas import changed_streams
from .voice import as_exception, attempt, sendable
from .whole import copy_from_rank


def feed(source: Any) -> Any:
    """The same generator, queue or stream, read by rank 0 alone: every rank gets what rank 0 reads.

    Whatever the script asks of it (the next item, get(), len) is done on rank 0, and the result, or the
    exception, or the end of the data, comes to all ranks. The script's random streams go on as rank 0's do. On
    ranks > 0 an item is a copy. Loaders have a way of their own (share).
    """
    if world_size() == 1:
        return source
    return Fed(source)


class Fed:
    """Stands on every rank for something that rank 0 has: each question is answered by rank 0.

    Questions from another thread than the one that made it are not the script's own, in which the ranks go side
    by side: a thread that fills a queue runs on rank 0 alone, and speaks to the queue itself.
    """

    def __init__(self, source: Any) -> None:
        vars(self).update(source=source, thread=threading.get_ident())

    def __iter__(self) -> Any:
        return ask(self, iter)

    def __next__(self) -> Any:
        return ask(self, next)

    def __len__(self) -> int:
        return int(ask(self, len))

    def __bool__(self) -> bool:
        return bool(ask(self, bool))

    def __getitem__(self, key: Any) -> Any:
        return ask(self, lambda source: source[key])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return ask(self, lambda source: source(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return ask(self, lambda source: getattr(source, name))

    def __setattr__(self, name: str, value: Any) -> None:
        ask(self, lambda source: setattr(source, name, value))

    def __enter__(self) -> Any:
        return ask(self, lambda source: source.__enter__())

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> Any:
        if kind is None:
            return ask(self, lambda source: source.__exit__(kind, *rest))
        source = vars(self)["source"]  # the other ranks may not come here
        return source.__exit__(kind, *rest) if own_rank() == 0 else None


def ask(fed: Fed, question: Callable[[Any], Any]) -> Any:
    """What rank 0 answers; every rank comes here, unless a thread of rank 0 has a question of its own."""
    source, thread = vars(fed)["source"], vars(fed)["thread"]
    if world_size() == 1 or threading.get_ident() != thread:
        return question(source)
    return tell(*answer(question, source)) if own_rank() == 0 else hear()


def answer(question: Callable[[Any], Any], source: Any) -> tuple[Any, Any, dict[str, Any]]:
    """The result, or the error, and the random streams that have moved. On rank 0, which is alone meanwhile."""
    before = random_streams()
    result, error = attempt(lambda: question(source))
    return result, error, changed_streams(random_streams(), before)


def tell(result: Any, error: Any, streams: dict[str, Any]) -> Any:
    """Send rank 0's answer to the others, and return or raise it."""
    try:
        if callable(result) or hasattr(result, "__next__"):  # it stays on rank 0: a method, an iterator
            raise TypeError
        packed = pack((result, sendable(error), streams, True))
    except Exception:
        packed = pack((None, sendable(error), streams, False))
        result = Fed(result)
    send(*packed)
    if error is not None:
        raise error
    return result


def hear() -> Any:
    """Rank 0's answer on another rank."""
    result, error, streams, sent = receive(0)
    set_random_streams(streams)
    if error is not None:
        raise as_exception(error)
    return result if sent else Fed(None)


def pack(value: Any) -> tuple[bytes, list[torch.Tensor]]:
    """The pickled value without its plain tensors, and these, which travel by themselves."""
    written = io.BytesIO()
    tensors: list[torch.Tensor] = []
    Packer(written, tensors).dump(value)
    return written.getvalue(), tensors


def send(message: bytes, tensors: list[torch.Tensor]) -> None:
    """A packed value, from this rank to all others."""
    bytes_from_rank(own_rank(), message)
    tensors_from_rank(own_rank(), tensors)


def receive(source: int) -> Any:
    """The value that another rank sends."""
    tensors: list[torch.Tensor] = []
    value = Unpacker(bytes_from_rank(source), tensors).load()
    tensors_from_rank(source, tensors)
    return value


class Packer(pickle.Pickler):
    """Writes the form of a tensor in place of its numbers."""

    def __init__(self, file: io.BytesIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(file, protocol=5)
        self.tensors = tensors
        self.numbers: dict[int, int] = {}

    def persistent_id(self, thing: Any) -> Any:
        plain = type(thing) is torch.Tensor and thing.layout == torch.strided and not thing.requires_grad
        if not plain or thing.is_quantized or thing.device.type not in ("cpu", "cuda"):
            return None
        number = self.numbers.setdefault(id(thing), len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(thing)
        dense = 1 + sum((n - 1) * step for n, step in zip(thing.shape, thing.stride(), strict=True))
        strides = thing.stride() if dense == thing.numel() else None
        return number, tuple(thing.shape), strides, thing.dtype, thing.device.type


class Unpacker(pickle.Unpickler):
    """Makes empty tensors of the forms, on this rank's device; they go to the list."""

    def __init__(self, message: bytes, tensors: list[torch.Tensor]) -> None:
        super().__init__(io.BytesIO(message))
        self.tensors = tensors
        self.made: dict[int, torch.Tensor] = {}

    def persistent_load(self, form: Any) -> torch.Tensor:
        number, shape, strides, dtype, device = form
        if number not in self.made:
            made = torch.empty(shape, dtype=dtype, device=device)
            self.made[number] = made if strides is None else made.as_strided(shape, strides)
            self.tensors.append(self.made[number])
        return self.made[number]


def bytes_from_rank(source: int, message: bytes = b"") -> bytes:
    """One rank's message on every rank: up to FRAME bytes in one round, with their length in front."""
    content = len(message).to_bytes(8, "little") + message
    frame = broadcast(content[:FRAME].ljust(FRAME, b"\0"), source)
    length = 8 + int.from_bytes(frame[:8], "little")
    rest = broadcast(content[FRAME:length].ljust(length - FRAME, b"\0"), source) if length > FRAME else b""
    return (frame + rest)[8:length]


def broadcast(content: bytes, source: int) -> bytes:
    """One rank's bytes, as many as the others bring."""
    place = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    torch.distributed.broadcast(place, source)
    return place.numpy().tobytes()


def tensors_from_rank(source: int, tensors: list[torch.Tensor]) -> None:
    """One rank's numbers into these tensors."""
    copy_from_rank(source, [tensor for tensor in tensors if tensor.numel() > 0])
