"""The collectives that each rank called, as it left them in the run folder; and where the ranks part. No torch here.

rankN.calls is a ring of the last calls, a mapped file: it can be read while the rank waits inside the last one.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

KEPT = 64
_BYTES = 256  # of an entry
# calls that only some ranks make, by design
_BETWEEN_TWO = {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}


@dataclass(frozen=True)
class CollectiveCall:
    """One call of a function of torch.distributed."""

    number: int  # counted from 1, on this rank
    name: str
    tensor: str  # "float32 4x2": of the first tensor it is given; "" if there is none
    group: str  # "" for all ranks
    place: str  # "train_ddp.py:88", the user's line

    def __str__(self) -> str:
        of = f" of {self.tensor}" if self.tensor else ""
        return f"{self.name}{of} at {self.place}"

    @property
    def meets_all(self) -> bool:
        """Whether all ranks take part in it, and not a group of some."""
        return not self.group and self.name not in _BETWEEN_TWO


class CallRing:
    """A rank's own ring."""

    def __init__(self, run_folder: Path, rank: int) -> None:
        path = run_folder / f"rank{rank}.calls"
        path.write_bytes(bytes(KEPT * _BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._count = 0

    def add(self, name: str, tensor: str, group: str, place: str) -> None:
        """Note a call; the oldest one makes room for it."""
        self._count += 1
        text = "\t".join((str(self._count), name, tensor, group, place)).encode()[: _BYTES - 1]
        at = self._count % KEPT * _BYTES
        self._map[at : at + _BYTES] = text.ljust(_BYTES, b"\0")


def read_calls(run_folder: Path, rank: int) -> tuple[CollectiveCall, ...]:
    """The last ones, oldest first."""
    path = run_folder / f"rank{rank}.calls"
    data = path.read_bytes() if path.exists() else b""
    entries = (data[at : at + _BYTES].rstrip(b"\0") for at in range(0, len(data), _BYTES))
    texts = [entry.decode(errors="replace").split("\t") for entry in entries if entry]
    calls = [CollectiveCall(int(text[0]), *text[1:5]) for text in texts if len(text) == 5]
    return tuple(sorted(calls, key=lambda call: call.number))


def parting(calls: Mapping[int, tuple[CollectiveCall, ...]]) -> str:
    """The first collective that not all ranks call, in words; "" if all ring the same."""
    shared = {rank: [call for call in made if call.meets_all] for rank, made in calls.items()}
    if len(shared) < 2 or not any(shared.values()):
        return ""
    if all(call.number == place for made in shared.values() for place, call in enumerate(made, 1)):
        numbered = {rank: dict(enumerate(made, 1)) for rank, made in shared.items()}
    else:  # the ring has been around, or there were other calls between
        numbered = {rank: {call.number: call for call in made} for rank, made in shared.items()}
    return _other_call(numbered) or _missing_call(numbered)


def _other_call(calls: Mapping[int, Mapping[int, CollectiveCall]]) -> str:
    for number in sorted(set.intersection(*(set(made) for made in calls.values()))):
        kinds = {(made[number].name, _size(made[number])) for made in calls.values()}
        if len(kinds) > 1:
            each = "; ".join(f"rank {rank}: {made[number]}" for rank, made in calls.items())
            return f"collective {number} is not the same on all ranks: {each}"
    return ""


def _size(call: CollectiveCall) -> str:
    return "" if call.name.startswith("all_to_all") else call.tensor


def _missing_call(calls: Mapping[int, Mapping[int, CollectiveCall]]) -> str:
    last = {rank: max(made, default=0) for rank, made in calls.items()}
    furthest = max(last.values())
    behind = [rank for rank, number in last.items() if number < furthest]
    if not behind:
        return ""
    ahead = next(rank for rank, number in last.items() if number == furthest)
    rank = behind[0]
    next_one = calls[ahead].get(last[rank] + 1)
    after = f"; its last one was {calls[rank][last[rank]]}" if last[rank] else ""
    what = f", {next_one}," if next_one else ""
    return f"collective {last[rank] + 1}{what} has been called by rank {ahead} and not by rank {rank}{after}"
