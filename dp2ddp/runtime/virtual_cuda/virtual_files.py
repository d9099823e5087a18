"""torch.save and torch.load on virtual devices.

Files are readable everywhere, because every tensor in them says "cpu", and yet exact here, because a record beside them
says which device each storage was on; torch.load ignores records that it does not know. When they are loaded, storages
stay where they are, and tensors get a mark.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._utils
import torch.serialization

from dp2ddp.runtime.virtual_cuda.function_mode import Args, Keywords, VirtualDevices, answers
from dp2ddp.runtime.virtual_cuda.places import PINNED, PLACE, Machine, place_of, put
from dp2ddp.taps import Taps

RECORD = "dp2ddp_places"
# A tensor of a file that does not tell where it was, loaded without a map_location, goes with every place.
UNKNOWN = -2
# Any throughout: torch's internal functions and classes of storages, which differ between versions.


class _SavedPlaces(threading.local):
    """Places of a file's storages, in the order in which the file first names them; per thread."""

    written: dict[int, int | None] | None = None  # of the file that is being written, by storage
    read: Iterator[int | None] | None = None  # of the one that is being read, if it has the record

    def write(self, storage: Any) -> None:
        if self.written is not None:
            self.written.setdefault(storage._cdata, place_of(storage))

    def next_location(self, location: str) -> str | None:
        """The next storage's location: from the record, or `location` if that is a device; None: nobody knows."""
        if self.read is None:
            return None if location == "cpu" else location
        place = next(self.read, None)
        return None if place is None else "cpu" if place < 0 else f"cuda:{place}"


def follow_files(taps: Taps, machine: Machine) -> None:
    """Let torch.save note where tensors are, and torch.load understand map_location with virtual devices."""
    places = _SavedPlaces()

    def save(original: Any, obj: Any, zip_file: Any, *args: Any, **kwargs: Any) -> None:
        written: dict[int, int | None] = {}
        places.written = written
        try:
            original(obj, zip_file, *args, **kwargs)
        finally:
            places.written = None
        record = json.dumps(list(written.values())).encode()
        zip_file.write_record(RECORD, record, len(record))

    def read(original: Any, zip_file: Any, *args: Any, **kwargs: Any) -> Any:
        has_record = zip_file.has_record(RECORD)
        places.read = iter(json.loads(zip_file.get_record(RECORD))) if has_record else None
        try:
            return original(zip_file, *args, **kwargs)
        finally:
            places.read = None

    def load(original: Any, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return original(f, _restore(machine, places, map_location), *args, **kwargs)

    def cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        """map_location=lambda storage, location: storage.cuda(1)"""
        return _mark(self.clone(), machine.index(device))

    taps.around("_save", save, torch.serialization)
    taps.around("_load", read, torch.serialization)
    taps.around("load", load, torch.serialization, torch)
    taps.set(torch.UntypedStorage, "cuda", cuda)
    taps.before("location_tag", places.write, torch.serialization)
    taps.before("_reduce_ex_internal", _mark_storage, torch.Tensor)
    taps.around("_get_obj_state", _without_marks, torch._utils)
    taps.after("_rebuild_tensor", _put_where_storage_is, torch._utils)


def _mark_storage(tensor: torch.Tensor, *args: Any) -> None:
    """torch.save sees storages only; each tensor that is about to be pickled marks its own."""
    if tensor.layout == torch.strided and not tensor.is_meta:
        _mark(tensor.untyped_storage(), place_of(tensor))


def _without_marks(original: Any, obj: object) -> object:
    """They are for this process only."""
    state: object = original(obj)
    if isinstance(obj, torch.Tensor) and isinstance(state, dict):
        return {name: value for name, value in state.items() if name not in (PLACE, PINNED)}
    return state


def _restore(machine: Machine, places: _SavedPlaces, map_location: Any) -> Any:
    """The map_location that torch.load gets: a function of ours, or meta and the like unchanged."""
    ask = map_location if callable(map_location) else _registered()
    is_device = not (map_location is None or callable(map_location) or isinstance(map_location, dict))
    if is_device and machine.place(map_location) is None:
        return map_location

    def restore(storage: Any, location: str) -> Any:
        where = saved = places.next_location(location)
        if is_device:
            where = map_location
        elif isinstance(map_location, dict):
            where = map_location.get(saved or location, saved)
        moved = ask(storage, location if where is None else str(where))
        return _mark(storage, UNKNOWN if where is None else machine.place(where)) if moved is None else moved

    return restore


def _registered() -> Callable[[Any, str], Any]:
    """Where tensors go, if torch.serialization.register_package was told (torch's own priorities begin at 10)."""
    registry = torch.serialization._package_registry
    return next(
        (restore for priority, _, restore in registry if priority < 10), lambda storage, location: None
    )


def _mark(storage: Any, place: int | None) -> Any:
    setattr(storage, PLACE, place)
    return storage


def _put_where_storage_is(tensor: torch.Tensor, storage: Any, *args: Any) -> None:
    """Every tensor of a file is made by torch._utils._rebuild_tensor, out of a storage that `_restore` has marked."""
    place = place_of(storage._untyped_storage)
    if place == UNKNOWN:
        tensor.__dict__.pop(PLACE, None)
    else:
        put(tensor, place)


@answers(torch.Tensor.set_)
def _set(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
    tensor: torch.Tensor = func(*args, **kwargs)
    return put(tensor, place_of(args[1]) if len(args) > 1 else None)
