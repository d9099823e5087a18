"""Functions that torch has for more types on CUDA than on the CPU."""

from __future__ import annotations

from typing import Any

import torch

from .function_mode import Handler, VirtualDevices
from .tensor_places import is_on_device, place_of, put


def add_cuda_kernels(mode: VirtualDevices) -> None:
    """torch.histc of whole numbers, the count of segmentation scripts (aten/src/ATen/native/cuda/SummaryOps.cu)."""

    def histc(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given, rest = (args[0], args[1:]) if args else (kwargs["input"], ())
        if given.is_floating_point() or not is_on_device(given):
            return mode.run(func, args, kwargs)
        others = {name: value for name, value in kwargs.items() if name != "input"}
        return put(func(given.double(), *rest, **others).to(given.dtype), place_of(given))

    mode.handle([torch.histc, torch.Tensor.histc], histc)
    for function, answer in _FFT_PLANS.items():
        mode.handle([getattr(torch, function)], _answering(answer))


# torch.backends.cuda.cufft_plan_cache: there are no plans
_FFT_PLANS = {
    "_cufft_get_plan_cache_size": 0,
    "_cufft_get_plan_cache_max_size": 4096,
    "_cufft_set_plan_cache_max_size": None,
    "_cufft_clear_plan_cache": None,
}


def _answering(answer: int | None) -> Handler:
    return lambda func, args, kwargs: answer
