"""What a script asks of real GPUs and compilers, and virtual devices leave out: a verdict says nothing about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any


class Unchecked(Enum):
    """What was left out; the value is how it is told."""

    COMPILE = "torch.compile (it ran as plain Python)"
    AUTOCAST = "the GPU's kernels of autocast"
    TF32 = "TF32"
    CUDNN = "cuDNN's choice of kernels"
    FUSED = "the GPU's fused optimizer"
    HOST_DRAWS = "which replica draws which number on the host (DataParallel's threads race for them)"


def unchecked_of_optimizer(optimizer: Any) -> Iterator[Unchecked]:
    """What an optimizer that takes a step asks for."""
    if any(group.get("fused") for group in optimizer.param_groups):
        yield Unchecked.FUSED


def unchecked_settings() -> Iterator[Unchecked]:
    """What a script has asked for by settings of torch that are not the usual ones, when it ends."""
    import torch

    settings: tuple[tuple[Unchecked, Callable[[], bool]], ...] = (
        (Unchecked.TF32, lambda: torch.get_float32_matmul_precision() != "highest"),
        (Unchecked.CUDNN, lambda: torch.backends.cudnn.benchmark or torch.backends.cudnn.deterministic),
    )
    for each, is_set in settings:
        try:
            if is_set():
                yield each
        except RuntimeError:  # torch cannot put into old words what newer settings (fp32_precision) say
            yield each
