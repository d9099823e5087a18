"""OpenCV in a float64 stage: some functions take no doubles, which the script's float32 arrays are there."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy

from dp2ddp.taps import Taps

# Those that raise "Unsupported depth of input image" for CV_64F, of the ones that training scripts call.
_WITHOUT_DOUBLES = ("cvtColor", "medianBlur", "bilateralFilter", "inpaint", "demosaicing")


def let_opencv_take_doubles(taps: Taps) -> None:
    """When the script imports cv2; it may be large, or not there."""
    if "cv2" in sys.modules:
        _patch(sys.modules["cv2"])
        return
    finder = _OpenCvFinder()
    sys.meta_path.insert(0, finder)
    taps.on_undo(finder.leave)


class _OpenCvFinder(MetaPathFinder):
    """Lets the others find cv2, once, and taps it as soon as it is loaded."""

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "cv2":
            return None
        self.leave()  # cv2's own start imports "cv2" again
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_patch(module: ModuleType) -> None:
            load(module)
            _patch(module)

        spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec


def _patch(module: ModuleType) -> None:
    for name in _WITHOUT_DOUBLES:
        if hasattr(module, name):
            Taps().around(name, _narrowing, module)


def _narrowing(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """With float32 in place of doubles, and doubles in place of the float32 that comes back; Any: as it is called."""
    if not any(map(_is_double, (*args, *kwargs.values()))):
        return function(*args, **kwargs)
    narrow_args = [_narrowed(argument) for argument in args]
    narrow_kwargs = {name: _narrowed(argument) for name, argument in kwargs.items()}
    return function(*narrow_args, **narrow_kwargs).astype(numpy.float64)


def _narrowed(argument: Any) -> Any:
    """An array of doubles as one of float32; anything else as it is."""
    return argument.astype(numpy.float32) if _is_double(argument) else argument


def _is_double(value: object) -> bool:
    return isinstance(value, numpy.ndarray) and value.dtype == numpy.float64
