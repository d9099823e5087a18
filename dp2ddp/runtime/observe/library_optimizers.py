"""Optimizers of libraries that do not derive from torch's, but have its `param_groups` and `state`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from torch.optim import optimizer as torchs

from dp2ddp.runtime.on_import import when_imported
from dp2ddp.taps import Taps

CLASSES = {"fastai.optimizer": "Optimizer"}  # its own SGD and Adam; OptimWrapper holds one of torch


def let_their_steps_be_seen() -> None:
    """Whoever has registered hooks for every step of torch's optimizers hears of theirs, too."""
    for module, name in CLASSES.items():
        when_imported(module, partial(_tell_of_steps, name))


def _tell_of_steps(name: str, module: ModuleType) -> None:
    Taps().around("step", _telling, getattr(module, name))


def _telling(step: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """As torch's Optimizer.profile_hook_step; Any: as it is called."""
    for hook in torchs._global_optimizer_pre_hooks.values():
        hook(optimizer, args, kwargs)
    result = step(optimizer, *args, **kwargs)
    for hook in torchs._global_optimizer_post_hooks.values():
        hook(optimizer, args, kwargs)
    return result
