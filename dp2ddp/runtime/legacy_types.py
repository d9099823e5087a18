"""torch.cuda.FloatTensor and its brothers: constructors and types of old scripts."""

from __future__ import annotations

from typing import Any

import torch

from dp2ddp.taps import Taps

from .function_mode import VirtualDevices
from .machine import Machine
from .tensor_methods import LEGACY_DTYPES, dtype_called
from .tensor_places import is_on_device, put
from .unwritten import sizes_only, zeroed


class LegacyType(type):
    """Calling the class makes a tensor on the current device; isinstance asks for dtype and place."""

    machine: Machine
    dtype: torch.dtype
    is_cuda = True

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        kwargs.pop("device", None)
        constructor = getattr(torch, cls.__name__)
        tensor: torch.Tensor = constructor(*args, **kwargs)
        return put(zeroed(tensor) if sizes_only(args) else tensor, cls.machine.current)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and is_on_device(instance) and instance.dtype == cls.dtype


def install_legacy_types(taps: Taps, mode: VirtualDevices) -> None:
    """Put torch.cuda.FloatTensor and its like in the place of torch's."""
    for name in LEGACY_DTYPES:
        values = {"machine": mode.machine, "dtype": dtype_called(name), "__module__": "torch.cuda"}
        taps.set(torch.cuda, name, LegacyType(name, (), values))
    taps.set(torch.Tensor, "__new__", staticmethod(_constructor(mode.machine)))
    taps.set(torch, "set_default_tensor_type", _default_tensor_type(mode.machine))


def _constructor(machine: Machine) -> Any:
    # (*args, **kwargs): any other signature would be compared by torch._dynamo.polyfills.tensor.
    def __new__(*args: Any, **kwargs: Any) -> torch.Tensor:
        """torch.Tensor(...): the constructor of the default type, which no mode sees."""
        cls, *arguments = args
        tensor: torch.Tensor = torch._C.TensorBase.__new__(cls, *arguments, **kwargs)
        if cls is not torch.Tensor:
            return tensor
        tensor = zeroed(tensor) if sizes_only(arguments) else tensor
        return put(tensor, machine.current) if machine.cuda_by_default else tensor

    return __new__


def _default_tensor_type(machine: Machine) -> Any:
    def set_default_tensor_type(t: Any) -> None:
        """torch.set_default_tensor_type("torch.cuda.FloatTensor"): new tensors are on the device."""
        name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
        torch.set_default_dtype(dtype_called(name))
        machine.cuda_by_default = name.startswith("torch.cuda.")

    return set_default_tensor_type
