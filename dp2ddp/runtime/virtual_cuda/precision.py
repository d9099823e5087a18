"""The float64 stage, and torch.autocast("cuda") on virtual devices.

In the float64 stage every floating point number of the script is a double, whatever it asks for: in double precision
two equivalent programs agree to 1e-10, so a difference means a fault and not rounding. Some functions of OpenCV take no
doubles, which the script's float32 arrays are there.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy
import torch
from torch.amp.autocast_mode import autocast
from torch.overrides import TorchFunctionMode

from dp2ddp.runtime.virtual_cuda.function_mode import placeless_functions
from dp2ddp.runtime.virtual_cuda.tensor_methods import LEGACY_DTYPES
from dp2ddp.taps import Function, Taps, when_imported

# Any throughout: arguments and results of whatever torch function was called.
HALF = frozenset({torch.float16, torch.bfloat16})
CastObserver = Callable[[torch.Tensor, torch.dtype], None]
"""Called with the tensor that a function is to make half precision of, or has made in it."""

WIDE = dict.fromkeys((*HALF, torch.float32), torch.float64)
WIDE |= dict.fromkeys((torch.complex32, torch.complex64), torch.complex128)
_WIDE_NAMES = {name: "DoubleTensor" for name, dtype in LEGACY_DTYPES.items() if dtype in WIDE}


class DoublePrecision(TorchFunctionMode):
    """Sits above VirtualDevices: asks for doubles where the script asks for less."""

    def __init__(self) -> None:
        super().__init__()
        self.observers: list[CastObserver] = []
        others = {torch.Tensor.view, torch.can_cast, torch.device}
        self._as_they_are = frozenset(placeless_functions()) | others
        self._sources = frozenset({torch.tensor, torch.as_tensor, torch.asarray})
        self._instead: dict[Function, Function] = {
            torch.Tensor.float: torch.Tensor.double,
            torch.Tensor.half: torch.Tensor.double,
            torch.Tensor.bfloat16: torch.Tensor.double,
            **{kernel: with_single_scale(kernel) for kernel in _OF_SCALES},
        }

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in self._as_they_are:
            return func(*args, **kwargs)
        wide = {name: _widen(value) for name, value in kwargs.items()}
        result = self._instead.get(func, func)(*map(_widen, args), **wide)
        if self.observers and (half := _half_of(func, (*args, *kwargs.values()))):
            source = args[0] if args and isinstance(args[0], torch.Tensor) else result
            if isinstance(source, torch.Tensor):
                for observer in self.observers:
                    observer(source, half)
        return widened(result) if func in self._sources else result


def _half_of(func: Function, values: tuple[Any, ...]) -> torch.dtype | None:
    """The half precision that a call is to give."""
    for value in values:
        if isinstance(value, torch.dtype) and value in HALF:
            return value
        if isinstance(value, str) and value.rpartition(".")[2] in _HALF_NAMES:
            return _HALF_NAMES[value.rpartition(".")[2]]
    return _CASTS.get(func)


_OF_SCALES = (torch._amp_foreach_non_finite_check_and_unscale_, torch._amp_update_scale_)
_HALF_NAMES = {name: dtype for name, dtype in LEGACY_DTYPES.items() if dtype in HALF}
_CASTS = {torch.Tensor.half: torch.float16, torch.Tensor.bfloat16: torch.bfloat16}


def install_double(taps: Taps) -> DoublePrecision:
    """Make every floating point number of the script a double."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    taps.on_undo(lambda: torch.set_default_dtype(before))
    taps.set(torch, "set_default_dtype", lambda d, /: None)  # of the script: it stays float64
    for name, wide in _WIDE_NAMES.items():
        taps.set(torch, name, getattr(torch, wide))
        taps.set(getattr(torch.cuda, name), "dtype", torch.float64)
    # These are not seen by a mode.
    for owner, name in ((torch, "from_numpy"), (torch, "frombuffer"), (torch._utils, "_rebuild_tensor")):
        taps.around(name, _with_wide_result, owner)
    taps.on_undo(when_imported("cv2", _let_opencv_take_doubles))
    return DoublePrecision()


def _with_wide_result(original: Function, *args: Any, **kwargs: Any) -> torch.Tensor:
    with torch._C.DisableTorchFunction():  # the storage has the dtype it has
        tensor: torch.Tensor = original(*args, **kwargs)
    return widened(tensor)


def _widen(value: Any) -> Any:
    """A dtype or a legacy type name among the arguments."""
    if isinstance(value, torch.dtype):
        return WIDE.get(value, value)
    if isinstance(value, str):
        stem, _, name = value.rpartition(".")
        return f"{stem}.{_WIDE_NAMES[name]}" if name in _WIDE_NAMES else value
    return value


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in double precision; a leaf stays a leaf."""
    wide = WIDE.get(tensor.dtype)
    if wide is None:
        return tensor
    return tensor.detach().to(wide).requires_grad_(tensor.requires_grad)


def with_single_scale(kernel: Function) -> Function:
    """GradScaler's two kernels, of which the scale and what goes with it are float32 alone (AmpKernels.cu)."""

    @torch.no_grad()
    def call(*args: Any) -> Any:
        singles = [each.float() if _is_double_tensor(each) else each for each in args]
        kernel(*singles)
        for each, single in zip(args, singles, strict=True):
            if each is not single:
                each.copy_(single)
        return args[0]

    return call


def _is_double_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float64


_BEFORE = "_dp2ddp_before"


def map_autocast_to_cpu(taps: Taps) -> None:
    """Enter the CPU's autocast with CUDA's switch and dtype.

    Both states are per thread in torch, so that DataParallel's threads know the switch but not the dtype:
    bfloat16 around a wrapped model is float16 inside (docs/semantics.md#autocast-dtype), here as there.
    """

    def enter(result: Any, context: autocast) -> None:
        if context.device == "cuda":
            before = getattr(context, _BEFORE, [])
            before.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
            setattr(context, _BEFORE, before)
            _switch_cpu(torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))

    def leave(context: autocast, *exc_info: Any) -> None:
        if context.device == "cuda":
            _switch_cpu(*getattr(context, _BEFORE).pop())

    taps.after("__enter__", enter, autocast)
    taps.before("__exit__", leave, autocast)


def _switch_cpu(enabled: bool, dtype: torch.dtype) -> None:
    torch.set_autocast_enabled("cpu", enabled)
    torch.set_autocast_dtype("cpu", dtype)


# Those that raise "Unsupported depth of input image" for CV_64F, of the ones that training scripts call.
_WITHOUT_DOUBLES = ("cvtColor", "medianBlur", "bilateralFilter", "inpaint", "demosaicing")


def _let_opencv_take_doubles(module: ModuleType) -> None:
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
