"""Constructors: torch.cuda.FloatTensor and its brothers, types of old scripts; and memory that nobody has written.

That is zeros on a stage: a script that prints or saves a tensor which it has not filled yet gets whatever lay there,
other numbers in each run, and two runs of one program would not be the same.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import torch

from dp2ddp.runtime.virtual_cuda.function_mode import VirtualDevices
from dp2ddp.runtime.virtual_cuda.places import Machine, is_on_device, put
from dp2ddp.runtime.virtual_cuda.tensor_methods import LEGACY_DTYPES, dtype_called
from dp2ddp.taps import Function, Taps


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
    machine = mode.machine

    # (*args, **kwargs): any other signature would be compared by torch._dynamo.polyfills.tensor.
    def __new__(*args: Any, **kwargs: Any) -> torch.Tensor:
        """torch.Tensor(...): the constructor of the default type, which no mode sees."""
        cls, *arguments = args
        tensor: torch.Tensor = torch._C.TensorBase.__new__(cls, *arguments, **kwargs)
        if cls is not torch.Tensor:
            return tensor
        tensor = zeroed(tensor) if sizes_only(arguments) else tensor
        return put(tensor, machine.current) if machine.cuda_by_default else tensor

    def set_default_tensor_type(t: Any) -> None:
        """torch.set_default_tensor_type("torch.cuda.FloatTensor"): new tensors are on the device."""
        name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
        torch.set_default_dtype(dtype_called(name))
        machine.cuda_by_default = name.startswith("torch.cuda.")

    taps.set(torch.Tensor, "__new__", staticmethod(__new__))
    taps.set(torch, "set_default_tensor_type", set_default_tensor_type)


def fill_unwritten(mode: VirtualDevices) -> None:
    """Let torch.empty and its like return zeros."""

    def empty(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return zeroed(mode.run(func, args, kwargs))

    mode.handle([torch.empty, torch.empty_like, torch.empty_strided, torch.empty_permuted], empty)
    mode.handle([torch.Tensor.new_empty, torch.Tensor.new_empty_strided], empty)


def zeroed(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunction(), torch.no_grad():
        return tensor.zero_()


def sizes_only(arguments: Sequence[Any]) -> bool:
    """Whether torch.Tensor(*arguments) is asked for a tensor of some size, and not for one of some data."""
    return all(isinstance(argument, (numbers.Integral, torch.Size)) for argument in arguments)
