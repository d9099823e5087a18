"""What is done to a library as soon as the script imports it; it may be large, or not there."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

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
