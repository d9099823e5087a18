"""Which of many like tests each commit runs: a few that have every feature among them; `--all` runs all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import pytest

Item = TypeVar("Item", bound=Hashable)


def covering(items: Sequence[Item], features: Callable[[Item], set[Hashable]]) -> list[Item]:
    """Greedy: what adds most comes next, of equals the first; so it is the same set every time."""
    shown = [(item, features(item)) for item in items]
    missing = {feature for _, some in shown for feature in some}
    chosen: list[Item] = []
    while missing:
        best, of_best = max(shown, key=lambda each: len(missing & each[1]))
        chosen.append(best)
        missing -= of_best
    return chosen


def slow_but_for(chosen: Sequence[Item], items: Sequence[Item], name: Callable[[Item], str]) -> list[Any]:
    """The items as parameters of a test, marked slow but for the chosen ones."""
    return [
        pytest.param(item, id=name(item), marks=[] if item in chosen else [pytest.mark.slow])
        for item in items
    ]
