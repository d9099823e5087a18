"""OpenCV in a float64 stage: some functions take no doubles, which the script's float32 arrays are there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy

from .imports import when_imported
from .patches import Patches

# Those that raise "Unsupported depth of input image" for CV_64F, of the ones that training scripts call.
_WITHOUT_DOUBLES = ("cvtColor", "medianBlur", "bilateralFilter", "inpaint", "demosaicing")


def let_opencv_take_doubles(patches: Patches) -> None:
    """When the script imports cv2."""
    patches.on_undo(when_imported("cv2", _patch))


def _patch(module: ModuleType) -> None:
    for name in _WITHOUT_DOUBLES:
        if hasattr(module, name):
            setattr(module, name, _narrowing(getattr(module, name)))


def _narrowing(function: Callable[..., Any]) -> Callable[..., Any]:
    """With float32 in place of doubles, and doubles in place of the float32 that comes back; Any: as it is called."""

    @functools.wraps(function)
    def narrowing(*args: Any, **kwargs: Any) -> Any:
        if not any(map(_is_double, (*args, *kwargs.values()))):
            return function(*args, **kwargs)
        narrow_args = [_narrowed(argument) for argument in args]
        narrow_kwargs = {name: _narrowed(argument) for name, argument in kwargs.items()}
        return function(*narrow_args, **narrow_kwargs).astype(numpy.float64)

    return narrowing


def _narrowed(argument: Any) -> Any:
    """An array of doubles as one of float32; anything else as it is."""
    return argument.astype(numpy.float32) if _is_double(argument) else argument


def _is_double(value: object) -> bool:
    return isinstance(value, numpy.ndarray) and value.dtype == numpy.float64
