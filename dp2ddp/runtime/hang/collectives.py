"""The functions of torch.distributed that a rank calls: the outermost ones, with the user's line; and where ranks part.

rankN.calls in the run folder is a ring of the last calls, a mapped file: it can be read while the rank waits inside the
last one. Read without torch.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dp2ddp.runtime.hang.stacks import users_line
from dp2ddp.taps import Inside, Taps

# what ranks call together, and two of them
OF_TENSORS = """
    all_gather all_gather_into_tensor all_gather_single all_reduce all_to_all all_to_all_single broadcast gather
    gather_into_tensor gather_single reduce reduce_scatter reduce_scatter_single reduce_scatter_tensor scatter
"""
OF_OBJECTS = "all_gather_object broadcast_object_list gather_object scatter_object_list"
BETWEEN_TWO = "send recv isend irecv batch_isend_irecv send_object_list recv_object_list"
_OTHERS = "all_gather_coalesced all_reduce_coalesced barrier monitored_barrier"
COLLECTIVES = f"{OF_TENSORS} {OF_OBJECTS} {BETWEEN_TWO} {_OTHERS}".split()
_OF_GROUPS = ("init_process_group", "new_group", "destroy_process_group")  # which all ranks have to call, too


def observe_collectives(calls: CallRing, add: Callable[[str, str], None] | None = None) -> None:
    """Note each call in the run folder, before it is made; `add` is told of the collectives among them."""
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        return
    module: Any = dist.distributed_c10d
    inside = Inside()

    def noted(name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Any: functions of torch."""
        if inside.yes:
            return original(*args, **kwargs)
        with inside.entered():
            calls.add(name, _what(args, kwargs), _group(args, kwargs), users_line())
            if add and name in COLLECTIVES:
                add("collectives", name)
            return original(*args, **kwargs)

    taps = Taps()
    taps.everywhere(module, {name: partial(noted, name) for name in (*COLLECTIVES, *_OF_GROUPS)})
    wrapper = torch.nn.parallel.DistributedDataParallel  # whose ranks meet when it is made
    taps.around("__init__", partial(noted, "DistributedDataParallel"), wrapper)
    taps.around("wait", wait_for_collective, module.Work)


def wait_for_collective(original: Any, work: Any, *args: Any, **kwargs: Any) -> Any:
    """Work.wait of an asynchronous collective, as a frame that a stack shows."""
    return original(work, *args, **kwargs)


def group_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The group that a collective is asked for; None: that of all ranks."""
    from torch.distributed import ProcessGroup

    return kwargs.get("group") or next((each for each in args if isinstance(each, ProcessGroup)), None)


def _group(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Nothing for all ranks, also where they are a group beside that of NCCL."""
    from torch.distributed import get_world_size

    given = group_of(args, kwargs)
    return "" if given is None or get_world_size(given) == get_world_size() else "group"


def _what(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Shape and dtype of the first tensor; or how many ranks are to meet."""
    from dp2ddp.costs.counter import tensors_in

    if "world_size" in kwargs:
        return f"{kwargs['world_size']} ranks"
    tensor = next(tensors_in((args, kwargs)), None)
    if tensor is None:
        return ""
    shape = "x".join(map(str, tensor.shape)) or "one number"
    return f"{str(tensor.dtype).removeprefix('torch.')} {shape}"


KEPT = 64
_BYTES = 256  # of an entry


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
        """Whether all ranks take part in it, and not a group of some, or two."""
        return not self.group and self.name not in BETWEEN_TWO.split()


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
    """The first collective that not all ranks call, in words; "" if all call the same."""
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
