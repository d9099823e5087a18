"""Which of many like tests each commit runs: a few that have every feature among them; `--all` runs all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import pytest

Item = TypeVar("Item", bound=Hashable)


def covering(items: Sequence[Item], features: Callable[[Item], set[Hashable]]) -> list[Item]:
    """Greedy: what adds most comes next, of equals the first; so it is the same set every time."""
    missing = {feature for item in items for feature in features(item)}
    chosen: list[Item] = []
    while missing:
        best = max(items, key=lambda item: len(missing & features(item)))
        chosen.append(best)
        missing -= features(best)
    return chosen


def slow_but_for(chosen: Sequence[Item], items: Sequence[Item], name: Callable[[Item], str]) -> list[Any]:
    """The items as parameters of a test, marked slow but for the chosen ones."""
    return [
        pytest.param(item, id=name(item), marks=[] if item in chosen else [pytest.mark.slow])
        for item in items
    ]
