"""How many bytes live on each virtual device, as max_memory_allocated tells of a real one."""

from __future__ import annotations

from collections import Counter as Counts
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

HOST = -1


@dataclass
class _Storage:
    alive: Any  # StorageWeakRef, which torch does not type; while it is held no other storage has the same address
    bytes: int
    place: int


class Live:
    """Storages of tensors, each once, whoever else refers to it: views, graphs, buckets.

    What a kernel needs on its way and has given back at its end is not seen.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Storage] = {}
        self._bytes: Counts[int] = Counts()
        self._most: Counts[int] = Counts()

    def forget_peaks(self) -> None:
        """Let peaks begin anew at what lives now."""
        self._sweep()
        self._most = Counts(self._bytes)

    def peaks(self, devices: int) -> tuple[int, ...]:
        """The most bytes that lived on each device since the last `forget_peaks`."""
        self.sample()
        return tuple(self._most[device] for device in range(devices))

    def place_of(self, tensor: torch.Tensor) -> int | None:
        """The device that a known tensor's memory lives on; None for an unknown one."""
        known = self._known.get(_address(tensor))
        return known.place if known else None

    def note(self, tensor: torch.Tensor, place: int | None) -> None:
        """The storage of a tensor is there; `place`: where, if anybody knows (else on the host until somebody does)."""
        address = _address(tensor)
        known = self._known.get(address)
        if known is None:
            storage = tensor.untyped_storage()
            alive = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
            known = _Storage(alive, storage.nbytes(), HOST if place is None else place)
            self._known[address] = known
            self._bytes[known.place] += known.bytes
            return
        if place is not None and place != known.place:
            self._bytes[known.place] -= known.bytes
            known.place = place
            self._bytes[place] += known.bytes
        if known.bytes != (now := tensor.untyped_storage().nbytes()):  # resize_
            self._bytes[known.place] += now - known.bytes
            known.bytes = now

    def sample(self) -> None:
        """Look at the peak; only where it may have grown are the dead counted out."""
        if all(count <= self._most[place] for place, count in self._bytes.items() if place != HOST):
            return
        self._sweep()
        for place, count in self._bytes.items():
            self._most[place] = max(self._most[place], count)

    def _sweep(self) -> None:
        for address, storage in list(self._known.items()):
            if storage.alive.expired():
                del self._known[address]
                self._bytes[storage.place] -= storage.bytes


def _address(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address
