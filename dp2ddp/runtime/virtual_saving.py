"""Files written on virtual devices: readable everywhere, because every tensor in them says "cpu", and yet exact here,
because a record beside them says which device each storage was on. torch.load ignores records that it does not know.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterator
from typing import Any

import torch
import torch.serialization

from .patches import Patches
from .tensor_places import PLACE, place_of

RECORD = "dp2ddp_places"


class SavedPlaces:
    """Places of a file's storages, in the order in which the file first names them; per thread."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def begin_writing(self) -> None:
        self._thread.written = {}

    def write(self, storage: Any) -> None:
        written = getattr(self._thread, "written", None)
        if written is not None:
            written.setdefault(storage._cdata, place_of(storage))

    def end_writing(self) -> list[int | None]:
        return list(self._thread.__dict__.pop("written").values())

    def begin_reading(self, places: list[int | None] | None) -> None:
        self._thread.read = None if places is None else iter(places)

    def read(self, location: str) -> str | None:
        """The next storage's location: from the record, or `location` if that is a device; None: nobody knows."""
        places: Iterator[int | None] | None = getattr(self._thread, "read", None)
        if places is None:
            return None if location == "cpu" else location
        place = next(places, None)
        return None if place is None else "cpu" if place < 0 else f"cuda:{place}"


def follow_saving(patches: Patches) -> SavedPlaces:
    """Any below: torch's internal functions, which take other arguments in other versions."""
    places = SavedPlaces()
    serialization: Any = torch.serialization
    save, load, location_tag = serialization._save, serialization._load, serialization.location_tag

    @functools.wraps(save)
    def _save(obj: Any, zip_file: Any, *args: Any, **kwargs: Any) -> None:
        places.begin_writing()
        try:
            save(obj, zip_file, *args, **kwargs)
        finally:
            record = json.dumps(places.end_writing()).encode()
        zip_file.write_record(RECORD, record, len(record))

    @functools.wraps(load)
    def _load(zip_file: Any, *args: Any, **kwargs: Any) -> Any:
        places.begin_reading(json.loads(zip_file.get_record(RECORD)) if zip_file.has_record(RECORD) else None)
        try:
            return load(zip_file, *args, **kwargs)
        finally:
            places.begin_reading(None)

    @functools.wraps(location_tag)
    def tag(storage: Any) -> str:
        places.write(storage)
        location: str = location_tag(storage)
        return location

    patches.set_all(serialization, {"_save": _save, "_load": _load, "location_tag": tag})
    patches.set(torch.Tensor, "_reduce_ex_internal", _marking_storages(torch.Tensor._reduce_ex_internal))
    return places


def _marking_storages(reduce: Any) -> Any:
    """torch.save sees storages only; each tensor that is about to be pickled marks its own."""

    @functools.wraps(reduce)
    def _reduce_ex_internal(self: torch.Tensor, *args: Any) -> Any:
        if self.layout == torch.strided and not self.is_meta:
            setattr(self.untyped_storage(), PLACE, place_of(self))
        return reduce(self, *args)

    return _reduce_ex_internal
