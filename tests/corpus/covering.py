"""Which runs of the corpus each commit makes: a few that have every idiom, number of devices and choice among them.

All runs are made with `pytest --all` (`python3 tests/run.py --all`), before a larger piece of work is called done.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from corpus.cases import Case

Run = tuple[Case, int]  # a script, and on how many devices


def covering(runs: Sequence[Run]) -> list[Run]:
    """Greedy: the run that adds most comes next, of equals the first; so it is the same set every time."""
    missing = {feature for run in runs for feature in features(run)}
    chosen: list[Run] = []
    while missing:
        best = max(runs, key=lambda run: len(missing & features(run)))
        chosen.append(best)
        missing -= features(best)
    return chosen


def features(run: Run) -> set[Hashable]:
    """What a run shows: idioms, and its group and choices on so many devices."""
    case, world = run
    group = case.name.partition("/")[0]
    return {*case.idioms, (group, world), (case.strategy, world), case.module is not None, case.trains}
