"""Replacing attributes of torch, remembered so that they can be put back."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

_ABSENT = object()


class Patches:
    """A stack of replaced attributes; `undo` puts the old ones back, newest first."""

    def __init__(self) -> None:
        self._undos: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name`; Any: owners are modules and classes of torch."""
        # vars(): a class attribute must come back as the staticmethod that it was, not as its function.
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        self.on_undo(lambda: _put_back(owner, name, before))

    def set_all(self, owner: Any, values: dict[str, Any]) -> None:
        for name, value in values.items():
            self.set(owner, name, value)

    def wrap(self, name: str, wrap: Callable[[Any], Any], *owners: Any) -> None:
        """Put `wrap(original)` in the place of a function that all the owners hold; Any: functions of torch."""
        original = getattr(owners[0], name)
        wrapped = functools.wraps(original)(wrap(original))
        for owner in owners:
            self.set(owner, name, wrapped)

    def on_undo(self, undo: Callable[[], None]) -> None:
        self._undos.append(undo)

    def undo(self) -> None:
        """Put everything back as it was, the last change first."""
        while self._undos:
            self._undos.pop()()


def replace_everywhere(replacements: Mapping[str, tuple[Any, Any]]) -> None:
    """Name -> an original and what stands for it now, in every module that has the original by its name.

    One that was imported before may have taken it from torch. Any: functions of torch. All in one go: there are 2,000
    modules.
    """
    for module in list(sys.modules.values()):
        if type(module) is not ModuleType:
            continue  # a subclass may import something, or warn, when it is asked
        for name in vars(module).keys() & replacements.keys():
            original, value = replacements[name]
            if vars(module)[name] is original:
                setattr(module, name, value)


def _put_back(owner: Any, name: str, before: Any) -> None:
    if before is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, before)
