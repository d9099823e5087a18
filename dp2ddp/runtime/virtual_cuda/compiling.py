"""torch.compile without compiling.

The compiler would trace the real CPU tensors and leave out the marks that say where they are; and compiled
and eager kernels differ in rounding, which would hide behind what is being compared."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from dp2ddp.taps import Taps


def skip_compiling(taps: Taps) -> None:
    """Let torch.compile return what it is given."""
    taps.set(torch, "compile", compile_nothing)
    taps.set(torch.nn.Module, "compile", lambda module, *args, **options: None)


def compile_nothing(model: Any = None, **options: Any) -> Any:
    """torch.compile: functions stay as they are, modules get the wrapper that prefixes their keys
    `_orig_mod.`.
    """
    if model is None:
        return lambda function: compile_nothing(function, **options)
    if isinstance(model, torch.nn.Module) and not options.get("disable"):
        return _shell()(model, lambda function: function)
    return model


@cache
def _shell() -> Any:
    from torch._dynamo.eval_frame import OptimizedModule

    class Shell(OptimizedModule):
        """torch's own, which DataParallel can replicate: torch's loses the module's parameters in that."""

        def _replicate_for_data_parallel(self) -> Any:
            twin = type(self).__new__(type(self))
            vars(twin).update(vars(self), _modules=dict(self._modules))
            return twin

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "_orig_mod":  # a replica's
                vars(self)["forward"] = value.__call__

    Shell.__name__ = Shell.__qualname__ = "OptimizedModule"
    return Shell
