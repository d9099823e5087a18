"""Functions that torch has for CUDA alone, or for more types there: the kernels of nn.SyncBatchNorm among them.

x: (rows, channels, ...); statistics: (channels,). Formulas: Ioffe & Szegedy 2015; names as in
aten/src/ATen/native/cuda/Normalization.cuh and torch/nn/modules/_functions.py.
"""

from __future__ import annotations

from typing import Any

import torch

from dp2ddp.runtime.virtual_cuda.function_mode import Args, Keywords, VirtualDevices, answers
from dp2ddp.runtime.virtual_cuda.places import is_on_device, place_of, put
from dp2ddp.taps import Function

Tensor = torch.Tensor
Pair = tuple[Tensor, Tensor]


@answers(torch.histc, torch.Tensor.histc)
def _histc(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> Any:
    """The count of segmentation scripts, of whole numbers (aten/src/ATen/native/cuda/SummaryOps.cu)."""
    given, rest = (args[0], args[1:]) if args else (kwargs["input"], ())
    if given.is_floating_point() or not is_on_device(given):
        return mode.run(func, args, kwargs)
    others = {name: value for name, value in kwargs.items() if name != "input"}
    return put(func(given.double(), *rest, **others).to(given.dtype), place_of(given))


def stats(x: Tensor, eps: float) -> Pair:
    """mean and 1 / sqrt(variance + eps) of this rank's rows"""
    variance, mean = torch.var_mean(x, _but_channels(x), correction=0)
    return mean, torch.rsqrt(variance + eps)


# means, invstds: (ranks, channels); counts: (ranks,)
def gather_stats(
    x: Tensor, means: Tensor, invstds: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    momentum: float, eps: float, counts: Tensor,
) -> Pair:  # fmt: skip
    """var = sum n_r (var_r + (mean_r - mean)^2) / n"""
    n = counts.sum()
    weights = (counts.to(means.dtype) / n)[:, None]
    mean = (weights * means).sum(0)
    variance = (weights * (invstds**-2 - eps + (means - mean) ** 2)).sum(0)
    if running_mean is not None and running_var is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_((variance * n / (n - 1)).to(running_var.dtype), momentum)
    return mean, torch.rsqrt(variance + eps)


def normalise(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    result = (x - _like(mean, x)) * _like(invstd, x)
    result = result if weight is None else result * _like(weight, x)
    return (result if bias is None else result + _like(bias, x)).to(x.dtype)


def reduce_backward(
    dy: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, *_: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """sum dy, sum dy (x - mean), and from them the gradients of weight and bias"""
    sum_dy = dy.sum(_but_channels(x))
    sum_dy_xmu = (dy * (x - _like(mean, x))).sum(_but_channels(x))
    return sum_dy, sum_dy_xmu, sum_dy_xmu * invstd, sum_dy.clone()


def normalise_backward(
    dy: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, sum_dy: Tensor, sum_dy_xmu: Tensor,
    counts: Tensor,
) -> Tensor:  # fmt: skip
    """dx = w invstd (dy - sum dy / n - (x - mean) invstd^2 sum dy (x - mean) / n)"""
    n = counts.sum()
    slope = _like(invstd**2 * sum_dy_xmu / n, x)
    dx = (dy - _like(sum_dy / n, x) - (x - _like(mean, x)) * slope) * _like(invstd, x)
    return (dx if weight is None else dx * _like(weight, x)).to(x.dtype)


_KERNELS: dict[Function, Function] = {
    torch.batch_norm_stats: stats,
    torch.batch_norm_gather_stats_with_counts: gather_stats,
    torch.batch_norm_elemt: normalise,
    torch.batch_norm_backward_reduce: reduce_backward,
    torch.batch_norm_backward_elemt: normalise_backward,
}


@answers(*_KERNELS)
def _of_sync_batch_norm(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> Any:
    return put(_KERNELS[func](*args, **kwargs), place_of(args[0]))


def _but_channels(x: Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _like(statistic: Tensor, x: Tensor) -> Tensor:
    """(channels,) -> (1, channels, 1, ...)"""
    return statistic.view(1, -1, *[1] * (x.dim() - 2))
