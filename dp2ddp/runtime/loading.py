"""torch.load where map_location speaks of virtual devices: the storages stay where they are, the tensors
get a mark.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.serialization

from .function_mode import VirtualDevices
from .machine import HOST, Machine
from .patches import Patches
from .places import PLACE, place_of, put

# Files written on virtual devices say "cpu" for every tensor, so that they can be read everywhere. Loaded
# without a map_location, such a tensor may have been on a device: it goes with every place.
UNKNOWN = -2

Restore = Callable[[Any, str], Any]
"""storage, location as the file has it -> storage; Any: torch's storage classes, which changed between versions."""


def follow_loading(patches: Patches, mode: VirtualDevices) -> None:
    load = torch.serialization.load

    @functools.wraps(load)
    def load_with_places(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return load(f, _restore(mode.machine, map_location), *args, **kwargs)

    patches.set(torch, "load", load_with_places)
    patches.set(torch.serialization, "load", load_with_places)
    patches.set(torch.UntypedStorage, "cuda", _storage_to_device(mode.machine))
    patches.set(torch._utils, "_rebuild_tensor", _rebuild_with_place(torch._utils._rebuild_tensor))
    mode.handle([torch.Tensor.set_], _set)


def _restore(machine: Machine, map_location: Any) -> Any:
    """What torch.load gets: our function, or meta and the like unchanged."""
    if map_location is None:
        return lambda storage, location: _mark(storage, _place_or_unknown(machine, location))
    if isinstance(map_location, dict):
        return lambda storage, location: _mark(
            storage, _place_or_unknown(machine, str(map_location.get(location, location)))
        )
    if callable(map_location):
        return lambda storage, location: map_location(storage, location)
    place = machine.place(map_location)
    return map_location if place is None else lambda storage, location: _mark(storage, place)


def _place_or_unknown(machine: Machine, location: str) -> int:
    place = machine.place(location)
    return UNKNOWN if place is None or place == HOST else place


def _mark(storage: Any, place: int) -> Any:
    setattr(storage, PLACE, place)
    return storage


def _storage_to_device(machine: Machine) -> Callable[..., Any]:
    def cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        """map_location=lambda storage, location: storage.cuda(1)"""
        return _mark(self.clone(), machine.index(device))

    return cuda


def _rebuild_with_place(rebuild: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Every tensor of a file is made by torch._utils._rebuild_tensor, out of a storage that `_restore` has
    marked.
    """

    @functools.wraps(rebuild)  # the name is looked up by torch/_weights_only_unpickler.py
    def rebuild_with_place(storage: Any, *args: Any) -> torch.Tensor:
        tensor = rebuild(storage, *args)
        place = place_of(storage._untyped_storage)
        if place == UNKNOWN:
            tensor.__dict__.pop(PLACE, None)
            return tensor
        return put(tensor, place)

    return rebuild_with_place


def _set(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    tensor: torch.Tensor = func(*args, **kwargs)
    return put(tensor, place_of(args[1]) if len(args) > 1 else None)
