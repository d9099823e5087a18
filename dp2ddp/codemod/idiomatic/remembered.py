"""What is found out once for a whole project, whichever of its files asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.modules import Modules

Found = TypeVar("Found")


def once_a_project(find: Callable[[Facts], Found]) -> Callable[[Facts], Found]:
    """Remember what a function of a project's facts finds; the entry script's facts are the first to be asked."""
    known: WeakKeyDictionary[Modules, Found] = WeakKeyDictionary()

    @wraps(find)
    def remembered(facts: Facts) -> Found:
        if facts.modules not in known:
            known[facts.modules] = find(facts)
        return known[facts.modules]

    return remembered
