"""What is done to a library as soon as the script imports it; it may be large, or not there."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from torch.optim import optimizer as torchs

from dp2ddp.taps import Taps

Act = Callable[[ModuleType], None]


def when_imported(name: str, act: Act) -> Callable[[], None]:
    """Act on a module now, if it is there, or once when it is loaded; returns what takes the latter back."""
    finder = _Finder(name, act)
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, finder)
    return finder.leave


class _Finder(MetaPathFinder):
    """Lets the others find a module, and acts on it as soon as it is loaded."""

    def __init__(self, name: str, act: Act) -> None:
        self._name, self._act = name, act

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        self.leave()  # cv2's own start imports "cv2" again
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_act(module: ModuleType) -> None:
            load(module)
            self._act(module)

        spec.loader.exec_module = load_and_act  # type: ignore[method-assign]
        return spec


# ---- optimizers of libraries that do not derive from torch's, but have its `param_groups` and `state`

CLASSES = {"fastai.optimizer": "Optimizer"}  # its own SGD and Adam; OptimWrapper holds one of torch


def let_their_steps_be_seen() -> None:
    """Whoever has registered hooks for every step of torch's optimizers hears of theirs, too."""

    def tell(name: str, module: ModuleType) -> None:
        Taps().around("step", _telling, getattr(module, name))

    for library, name in CLASSES.items():
        when_imported(library, partial(tell, name))


def _telling(step: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """As torch's Optimizer.profile_hook_step; Any: as it is called."""
    for hook in torchs._global_optimizer_pre_hooks.values():
        hook(optimizer, args, kwargs)
    result = step(optimizer, *args, **kwargs)
    for hook in torchs._global_optimizer_post_hooks.values():
        hook(optimizer, args, kwargs)
    return result
