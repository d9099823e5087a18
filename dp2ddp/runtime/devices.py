"""N virtual CUDA devices on the CPU, so that unchanged CUDA scripts run where there is no GPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch._utils

from .autograd_places import follow_autograd
from .cuda_api import install_cuda_api
from .data_parallel import install_data_parallel
from .function_mode import VirtualDevices
from .machine import Machine
from .patches import Patches
from .places import PINNED, PLACE, put
from .random_streams import RandomStreams
from .tensor_methods import add_tensor_methods
from .threads import push_in_all_threads


@dataclass(frozen=True)
class Installation:
    """What `install` made; `undo` takes it back (in the same thread)."""

    machine: Machine
    streams: RandomStreams
    mode: VirtualDevices
    patches: Patches

    def undo(self) -> None:
        self.patches.undo()


def install(count: int, dtype: str = "float32") -> Installation:
    """Make this process believe that it has `count` CUDA devices, until the process ends or `undo`.

    dtype "float64": all floating point numbers of the script are doubles, whatever it asks for.
    """
    machine, patches = Machine(count), Patches()
    streams = RandomStreams(count)
    mode = VirtualDevices(machine, streams)
    add_tensor_methods(mode)
    follow_autograd(patches, mode)
    keep_places_out_of_files(patches)
    install_cuda_api(patches, machine, streams)
    install_data_parallel(patches, machine)
    push_in_all_threads(patches, [mode])
    return Installation(machine, streams, mode, patches)


def keep_places_out_of_files(patches: Patches) -> None:
    """Marks are for this process only; a Parameter made of a marked tensor is where the tensor is."""
    original_state = torch._utils._get_obj_state
    original_subclass = torch.Tensor._make_subclass

    def _get_obj_state(obj: object) -> object:
        state = original_state(obj)
        if isinstance(obj, torch.Tensor) and isinstance(state, dict):
            return {name: value for name, value in state.items() if name not in (PLACE, PINNED)}
        return state

    def _make_subclass(cls: type, data: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        return put(original_subclass(cls, data, *args, **kwargs), getattr(data, PLACE, None))

    patches.set(torch._utils, "_get_obj_state", _get_obj_state)
    patches.set(torch.Tensor, "_make_subclass", staticmethod(_make_subclass))
