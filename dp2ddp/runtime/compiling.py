"""torch.compile without compiling.

The compiler would trace the real CPU tensors and leave out the marks that say where they are; and compiled
and eager kernels differ in rounding, which would hide behind what is being compared."""

from __future__ import annotations

from typing import Any

import torch

from .patches import Patches


def skip_compiling(patches: Patches) -> None:
    patches.set(torch, "compile", compile_nothing)


def compile_nothing(model: Any = None, **options: Any) -> Any:
    """torch.compile: functions stay as they are, modules get the wrapper that prefixes their keys
    `_orig_mod.`.
    """
    if model is None:
        return lambda function: compile_nothing(function, **options)
    if isinstance(model, torch.nn.Module):
        from torch._dynamo.eval_frame import OptimizedModule

        return OptimizedModule(model, _eager)  # type: ignore[arg-type]  # only called with a function
    return model


def _eager(function: Any) -> Any:
    return function
