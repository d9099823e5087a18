"""Files written on virtual devices: readable everywhere, because every tensor in them says "cpu", and yet exact here,
because a record beside them says which device each storage was on. torch.load ignores records that it does not know.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import torch
import torch.serialization

from dp2ddp.taps import Taps

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


def follow_saving(taps: Taps) -> SavedPlaces:
    """Any below: torch's internal functions, which take other arguments in other versions."""
    places = SavedPlaces()

    def save(original: Any, obj: Any, zip_file: Any, *args: Any, **kwargs: Any) -> None:
        places.begin_writing()
        try:
            original(obj, zip_file, *args, **kwargs)
        finally:
            record = json.dumps(places.end_writing()).encode()
        zip_file.write_record(RECORD, record, len(record))

    def load(original: Any, zip_file: Any, *args: Any, **kwargs: Any) -> Any:
        places.begin_reading(json.loads(zip_file.get_record(RECORD)) if zip_file.has_record(RECORD) else None)
        try:
            return original(zip_file, *args, **kwargs)
        finally:
            places.begin_reading(None)

    taps.around("_save", save, torch.serialization)
    taps.around("_load", load, torch.serialization)
    taps.before("location_tag", places.write, torch.serialization)
    taps.before("_reduce_ex_internal", _mark_storage, torch.Tensor)
    return places


def _mark_storage(tensor: torch.Tensor, *args: Any) -> None:
    """torch.save sees storages only; each tensor that is about to be pickled marks its own."""
    if tensor.layout == torch.strided and not tensor.is_meta:
        setattr(tensor.untyped_storage(), PLACE, place_of(tensor))
