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
import torch.serialization

from dp2ddp.runtime.virtual_cuda.function_mode import VirtualDevices
from dp2ddp.runtime.virtual_cuda.places import PLACE, Machine, place_of, put
from dp2ddp.taps import Taps

RECORD = "dp2ddp_places"


class SavedPlaces(threading.local):
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


def follow_saving(taps: Taps) -> SavedPlaces:
    """Any below: torch's internal functions, which take other arguments in other versions."""
    places = SavedPlaces()

    def save(original: Any, obj: Any, zip_file: Any, *args: Any, **kwargs: Any) -> None:
        written: dict[int, int | None] = {}
        places.written = written
        try:
            original(obj, zip_file, *args, **kwargs)
        finally:
            places.written = None
        record = json.dumps(list(written.values())).encode()
        zip_file.write_record(RECORD, record, len(record))

    def load(original: Any, zip_file: Any, *args: Any, **kwargs: Any) -> Any:
        has_record = zip_file.has_record(RECORD)
        places.read = iter(json.loads(zip_file.get_record(RECORD))) if has_record else None
        try:
            return original(zip_file, *args, **kwargs)
        finally:
            places.read = None

    taps.around("_save", save, torch.serialization)
    taps.around("_load", load, torch.serialization)
    taps.before("location_tag", places.write, torch.serialization)
    taps.before("_reduce_ex_internal", _mark_storage, torch.Tensor)
    return places


def _mark_storage(tensor: torch.Tensor, *args: Any) -> None:
    """torch.save sees storages only; each tensor that is about to be pickled marks its own."""
    if tensor.layout == torch.strided and not tensor.is_meta:
        setattr(tensor.untyped_storage(), PLACE, place_of(tensor))


# A tensor of a file that does not tell where it was, loaded without a map_location, goes with every place.
UNKNOWN = -2

Restore = Callable[[Any, str], Any]
"""storage, location as the file has it -> storage; Any: torch's storage classes, which changed between versions."""


def follow_loading(taps: Taps, mode: VirtualDevices, places: SavedPlaces) -> None:
    """Let torch.load understand map_location with virtual devices."""

    def load(original: Any, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return original(f, _restore(mode.machine, places, map_location), *args, **kwargs)

    def cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        """map_location=lambda storage, location: storage.cuda(1)"""
        return _mark(self.clone(), mode.machine.index(device))

    taps.around("load", load, torch.serialization, torch)
    taps.set(torch.UntypedStorage, "cuda", cuda)
    taps.after("_rebuild_tensor", _put_where_storage_is, torch._utils)
    mode.handle([torch.Tensor.set_], _set)


def _restore(machine: Machine, places: SavedPlaces, map_location: Any) -> Any:
    """What torch.load gets: our function, or meta and the like unchanged."""
    registered = _registered()
    if map_location is not None and not isinstance(map_location, dict) and not callable(map_location):
        place, name = machine.place(map_location), str(map_location)

        def restore_at(storage: Any, location: str) -> Any:
            moved = registered(storage, name)
            return _mark(storage, place) if moved is None else moved

        return map_location if place is None else restore_at
    map_location = registered if map_location is None else map_location

    def restore(storage: Any, location: str) -> Any:
        saved = places.next_location(location)
        if callable(map_location):
            moved = map_location(storage, saved or location)
            if moved is not None:
                return moved
        if isinstance(map_location, dict):
            saved = map_location.get(saved or location, saved)
        return _mark(storage, UNKNOWN if saved is None else machine.place(saved))

    return restore


def _registered() -> Restore:
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


def _set(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    tensor: torch.Tensor = func(*args, **kwargs)
    return put(tensor, place_of(args[1]) if len(args) > 1 else None)
