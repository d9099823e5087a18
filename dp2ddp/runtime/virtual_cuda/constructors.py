"""Constructors that no mode sees, of old types too (torch.cuda.FloatTensor); and memory that nobody has written.

That is zeros on a stage: a script that prints or saves a tensor which it has not filled yet gets whatever lay there,
other numbers in each run, and two runs of one program would not be the same.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import torch

from dp2ddp.runtime.virtual_cuda.function_mode import Args, Keywords, VirtualDevices, answers
from dp2ddp.runtime.virtual_cuda.places import Machine, common_place, is_on_device, put, tensors_in
from dp2ddp.runtime.virtual_cuda.tensor_methods import LEGACY_DTYPES, dtype_called
from dp2ddp.taps import Taps

# Any throughout: what functions of torch are called with.


class LegacyType(type):
    """Calling the class makes a tensor on the current device; isinstance asks for dtype and place."""

    machine: Machine
    dtype: torch.dtype
    is_cuda = True

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        kwargs.pop("device", None)
        constructor = getattr(torch, cls.__name__)
        return put(_written(constructor(*args, **kwargs), args), cls.machine.current)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and is_on_device(instance) and instance.dtype == cls.dtype


def follow_constructors(taps: Taps, machine: Machine) -> None:
    """Tensors that are made of others, or of sizes, have a place; torch.cuda has its types."""
    for name in LEGACY_DTYPES:
        values = {"machine": machine, "dtype": dtype_called(name), "__module__": "torch.cuda"}
        taps.set(torch.cuda, name, LegacyType(name, (), values))

    # (*args, **kwargs): any other signature would be compared by torch._dynamo.polyfills.tensor.
    def __new__(*args: Any, **kwargs: Any) -> torch.Tensor:
        """torch.Tensor(...): the constructor of the default type."""
        cls, *arguments = args
        tensor: torch.Tensor = torch._C.TensorBase.__new__(cls, *arguments, **kwargs)
        if cls is not torch.Tensor:
            return tensor
        return put(_written(tensor, arguments), machine.current if machine.cuda_by_default else None)

    def set_default_tensor_type(t: Any) -> None:
        """torch.set_default_tensor_type("torch.cuda.FloatTensor"): new tensors are on the device."""
        name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
        torch.set_default_dtype(dtype_called(name))
        machine.cuda_by_default = name.startswith("torch.cuda.")

    taps.set(torch.Tensor, "__new__", staticmethod(__new__))
    taps.set(torch, "set_default_tensor_type", set_default_tensor_type)
    taps.after("_make_subclass", _put_where_data_is, torch.Tensor)  # of a Parameter
    taps.around("_make_wrapper_subclass", _on_cpu, torch.Tensor)
    taps.set(torch.autograd.Variable, "__new__", staticmethod(_variable))


def _put_where_data_is(made: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    put(made, common_place(tensors_in(args)))


def _on_cpu(original: Any, *args: Any, **kwargs: Any) -> Any:
    """A tensor without memory of its own is told where it is: on the CPU, as all are."""
    if "device" in kwargs:
        kwargs["device"] = torch.device("cpu")
    return original(*args, **kwargs)


def _variable(cls: type, *args: Any, **kwargs: Any) -> torch.Tensor:
    """torch.autograd.Variable(tensor) of old scripts: an alias."""
    tensor: torch.Tensor = torch._C._LegacyVariableBase.__new__(cls, *args, **kwargs)
    return put(tensor, common_place(tensors_in(args)))


_EMPTY = (torch.empty, torch.empty_like, torch.empty_strided, torch.empty_permuted)


@answers(*_EMPTY, torch.Tensor.new_empty, torch.Tensor.new_empty_strided)
def _empty(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> Any:
    return _zeroed(mode.run(func, args, kwargs))


def _written(tensor: torch.Tensor, arguments: Sequence[Any]) -> torch.Tensor:
    """With zeros, if torch.Tensor(*arguments) was asked for a tensor of some size, and not for one of some data."""
    sizes_only = all(isinstance(argument, (numbers.Integral, torch.Size)) for argument in arguments)
    return _zeroed(tensor) if sizes_only else tensor


def _zeroed(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunction(), torch.no_grad():
        return tensor.zero_()
