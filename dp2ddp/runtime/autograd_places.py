"""Places in the backward pass: the engine makes tensors below Python, where no mode sees them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.autograd.function
import torch.utils.checkpoint
from torch.overrides import TorchFunctionMode

from .function_mode import VirtualDevices
from .machine import Machine
from .patches import Patches
from .places import common_place, place_of, put, put_missing, tensors_in

_PLACES = "_dp2ddp_places"  # on the ctx of a custom Function: where each of its outputs is


def follow_autograd(patches: Patches, mode: VirtualDevices) -> None:
    """Any below: torch's own functions, wrapped with whatever arguments they take."""
    patches.set(torch.autograd.Function, "apply", classmethod(_apply_with_places()))
    backward_class = torch.autograd.function.BackwardCFunction
    patches.set(backward_class, "apply", _backward_with_places(backward_class.apply, mode.machine))
    mode.handle([torch.Tensor.register_hook], _register_hook)


def _apply_with_places() -> Any:
    """An input that a Function returns as it is comes back as a new view, unmarked (custom_function.cpp)."""
    original = inspect.getattr_static(torch.autograd.Function, "apply")  # in C or in Python, by torch version

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        result = original.__get__(None, cls)(*args, **kwargs)
        place = common_place(tensors_in(args))
        if place is not None:
            put_missing(result, place)
        _remember_places(result)
        return result

    return apply


def _remember_places(result: Any) -> None:
    outputs = result if isinstance(result, tuple) else (result,)
    places = [place_of(output) if isinstance(output, torch.Tensor) else None for output in outputs]
    for output in outputs:
        node: Any = output.grad_fn if isinstance(output, torch.Tensor) else None
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            setattr(node, _PLACES, places)
            return


def _backward_with_places(original: Any, machine: Machine) -> Any:
    """A gradient is where its output was, and that device is current (engine.cpp, set_device)."""

    def apply(self: Any, *grads: Any) -> Any:
        places = getattr(self, _PLACES, None)
        if places is None:
            return original(self, *grads)
        for grad, place in zip(grads, places, strict=False):
            put(grad, place)
        on_device = [place for place in places if place is not None and place >= 0]
        if not on_device:
            return original(self, *grads)
        before = machine.set_current(on_device[0]), machine.set_place_of_unknown(on_device[0])
        try:
            return original(self, *grads)
        finally:
            machine.set_current(before[0])
            machine.set_place_of_unknown(before[1])

    return apply


def keep_modes_in_backward(patches: Patches, modes: Sequence[TorchFunctionMode]) -> None:
    """While a mode answers Tensor.backward it is off; hooks, backwards of Functions and checkpoints need it."""
    original = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

    def run(*args: Any, **kwargs: Any) -> Any:
        there = torch.overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        with ExitStack() as stack:
            for mode in modes:
                if mode not in there:
                    stack.enter_context(mode)
            return original(*args, **kwargs)

    patches.set(torch.autograd, "_engine_run_backward", run)
    checks = torch.utils.checkpoint._allowed_determinism_checks_to_fns
    without_places = {**checks, "default": _shape_and_dtype}
    patches.set(torch.utils.checkpoint, "_allowed_determinism_checks_to_fns", without_places)


def _shape_and_dtype(tensor: torch.Tensor) -> dict[str, Any]:
    """What a checkpoint compares when it runs layers again: a saved tensor is not marked, and knows no place."""
    return {"shape": tensor.shape, "dtype": tensor.dtype}


def _register_hook(func: Any, args: Any, kwargs: Any) -> Any:
    """The gradient that a hook is given is where the tensor is."""
    tensor, hook = args
    place = place_of(tensor)
    if place is None:
        return func(tensor, hook)
    return func(tensor, lambda grad: hook(put(grad, place)))
