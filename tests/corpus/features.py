"""What a run of a script of the corpus shows; each commit makes a few runs that show everything (covering.py)."""

from __future__ import annotations

from collections.abc import Hashable

from corpus.cases import Case

Run = tuple[Case, int]  # a script, and on how many devices


def features(run: Run) -> set[Hashable]:
    """What a run shows: idioms, its helpers, and its group on so many devices."""
    case, world = run
    group = case.name.partition("/")[0]
    return {
        *case.idioms,
        group,
        world,
        case.helpers,
        ("module", case.module is not None),
        ("trains", case.trains),
    }
