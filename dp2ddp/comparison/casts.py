"""Half precision that a script asks for by hand, on one side only: float64 runs hide what it does to the numbers.

The whole run is looked at, not each step: a port may cast a batch when it is loaded, a step earlier.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dp2ddp.comparison.differences import Difference
from dp2ddp.trace.records import SCALED, Trace

_HALF = "float16"
Seen = dict[str, tuple[int, int, str]]  # what is cast -> first step, rank, the user's line


def cast_differences(
    reference: Trace, ranks: Sequence[Trace], matched: Sequence[Sequence[int]]
) -> Iterator[Difference]:
    """A difference for each kind of cast that one side alone makes; `matched`: each rank's steps, by DataParallel's."""
    expected, actual = _seen(reference, range(len(reference))), Seen()
    for rank, steps in zip(ranks, matched, strict=True):
        for what, seen in _seen(rank, steps).items():
            actual[what] = min(seen, actual.get(what, seen))
    lines = [line for trace in (reference, *ranks) for line in (*trace.lines, *trace.last_line)]
    needs_scale = any(  # small gradients become zeros in float16, and in nothing else
        _HALF in line["precision"] or any(what.endswith(f" {_HALF}") for what, _ in line["casts"])
        for line in lines
    )
    for what in sorted(expected.keys() ^ actual.keys()):
        if what != SCALED or needs_scale:
            step, who, place = actual.get(what) or expected[what]
            side = "under DDP" if what in actual else "under DataParallel"
            yield Difference("precision", np.inf, step, who, f"{what} {side} only, at {place}")


def _seen(trace: Trace, steps: Sequence[int]) -> Seen:
    seen = Seen()
    numbers = {own: number for number, own in enumerate(steps)}
    for own, line in enumerate((*trace.lines, *trace.last_line)):
        for what, place in line["casts"]:
            seen.setdefault(what, (numbers.get(own, len(steps)), trace.rank, place))
    return seen
