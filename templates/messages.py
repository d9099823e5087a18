"""What the ranks send each other behind a forward pass: in one round, with those of its tensors that are small."""

import pickle
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed

from .loaded import take_in, waiting_beside
from .process import pickle_or_explain, world_size
from .rows import as_bytes

# Bytes of a first message; what is longer needs a second round.
FRAME = 2048

# Bytes of a rank's tensors that still travel in its message.
SMALL = 64 * 1024


@dataclass(frozen=True)
class RankMessage:
    """What one rank brought: a value, and its tensors, if they were small."""

    value: Any
    tensors: list[torch.Tensor] | None
    waiting: list[torch.Tensor]  # what it says of batches, see loaded.py


class StepExchange:
    """Messages of all ranks, in frames as long as the last ones of their kind; what is longer needs a second round."""

    def __init__(self) -> None:
        self.lengths: dict[Hashable, tuple[int, ...]] = {}
        self.known: dict[bytes, Any] = {}

    def exchange(
        self, kind: Hashable, value: Any, tensors: Sequence[torch.Tensor], arguments: Any = ()
    ) -> list[RankMessage]:
        """What every rank brought, in rank order; all of them name the same kind. `arguments`: of the forward pass."""
        small = are_small(tensors)
        content = pack_message(value, tensors if small else None, waiting_beside(arguments, small))
        frame = max(self.lengths.get(kind, (FRAME,)))
        frames = gather_frames(content[:frame].ljust(frame, b"\0"))
        lengths = [int.from_bytes(each[:8], "little") for each in frames]
        if max(lengths) > frame:
            rests = gather_frames(content[frame:].ljust(max(lengths) - frame, b"\0"))
            frames = [each + rest for each, rest in zip(frames, rests, strict=True)]
        self.lengths[kind] = (*self.lengths.get(kind, ())[-1:], next_multiple(max(lengths), 256))
        heads = [bytes(each[16 : 16 + int.from_bytes(each[8:16], "little")]) for each in frames]
        self.known = {head: self.known[head] if head in self.known else pickle.loads(head) for head in heads}
        messages = [
            unpack_message(self.known[head], frame, rank)
            for rank, (head, frame) in enumerate(zip(heads, frames, strict=True))
        ]
        take_in([message.waiting for message in messages])
        return messages


def are_small(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether tensors may travel in a message."""
    return all(map(is_plain_on_host, tensors)) and sum(t.numel() * t.element_size() for t in tensors) <= SMALL


def pack_message(
    value: Any, tensors: "Sequence[torch.Tensor] | None", waiting: Sequence[torch.Tensor]
) -> bytearray:
    """A message: its length, that of its head, the head, and the tensors."""
    all_tensors = [*(tensors or ()), *waiting]
    forms = [[(tensor.dtype, tensor.shape) for tensor in each] for each in (tensors or (), waiting)]
    head = pickle_or_explain((value, tensors is not None, *forms))
    ends = [next_multiple(16 + len(head), 16)]
    for tensor in all_tensors:
        ends.append(next_multiple(ends[-1] + tensor.numel() * tensor.element_size(), 16))
    content = bytearray(ends[-1])
    content[: 16 + len(head)] = ends[-1].to_bytes(8, "little") + len(head).to_bytes(8, "little") + head
    memory = torch.frombuffer(content, dtype=torch.uint8)
    for start, tensor in zip(ends, all_tensors, strict=False):
        memory[start : start + tensor.numel() * tensor.element_size()] = as_bytes(
            tensor.detach().contiguous()
        )
    return content


def unpack_message(head: Any, frame: bytearray, rank: int) -> RankMessage:
    """The message whose head has been read; its tensors lie in the frame."""
    if isinstance(head, pickle.PicklingError):
        raise TypeError(f"rank {rank} cannot send this to the other ranks: {head}")
    value, has_tensors, *forms = head
    start = next_multiple(16 + int.from_bytes(frame[8:16], "little"), 16)
    lists: list[list[torch.Tensor]] = [[], []]
    for dtype, shape, tensors in (
        (*form, place) for each, place in zip(forms, lists, strict=True) for form in each
    ):
        count = shape.numel()
        if count == 0:
            tensors.append(torch.empty(shape, dtype=dtype))
            continue
        tensors.append(torch.frombuffer(frame, dtype=dtype, count=count, offset=start).view(shape))
        start = next_multiple(start + count * tensors[-1].element_size(), 16)
    return RankMessage(value, lists[0] if has_tensors else None, lists[1])


def is_plain_on_host(tensor: torch.Tensor) -> bool:
    """Whether a tensor is in the host's memory, as it looks."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def next_multiple(length: int, unit: int) -> int:
    """The next multiple of a unit."""
    return -(-length // unit) * unit


def gather_frames(content: bytearray) -> list[bytearray]:
    """Every rank's bytes, as many of them on each rank."""
    frames = [bytearray(len(content)) for _ in range(world_size())]
    places = [torch.frombuffer(place, dtype=torch.uint8) for place in frames]
    torch.distributed.all_gather(places, torch.frombuffer(content, dtype=torch.uint8))
    return frames
