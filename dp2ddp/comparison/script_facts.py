"""What a step's numbers of Python say: learning rates, losses, decisions, samples and their random numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dp2ddp.comparison.differences import TINY, Difference
from dp2ddp.comparison.tolerance import FACTOR, Tolerance
from dp2ddp.trace.records import SCALED, Step, Trace

_HALF = "float16"
Seen = dict[str, tuple[int, int, str]]  # what is cast -> first step, rank, the user's line


@dataclass(frozen=True)
class CastOnOneSide:
    """A kind of cast to half precision that one side alone makes."""

    what: str
    on_ranks: bool
    step: int  # its first
    rank: int
    place: str  # the user's line

    @property
    def difference(self) -> Difference:
        """As one of its step."""
        side = "under DDP" if self.on_ranks else "under DataParallel"
        words = f"{self.what} {side} only, at {self.place}"
        return Difference("precision", np.inf, self.step, self.rank, words)


def number_differences(
    kind: str, expected: tuple[float, ...], actual: tuple[float, ...], step: int, rank: int, scale: float
) -> Iterator[Difference]:
    """The differences between two tuples of numbers, one each; a single one of size inf if their lengths differ.

    Relative to the expected number, or to `scale` where that is larger.
    """
    if len(expected) != len(actual):
        yield Difference(kind, np.inf, step, rank, f"({len(actual)} of them instead of {len(expected)})")
        return
    for a, b in zip(expected, actual, strict=True):
        same = a == b or (np.isnan(a) and np.isnan(b))
        size = 0.0 if same else abs(a - b) / max(abs(a), scale)
        yield Difference(kind, size, step, rank, "", abs(a), abs(b))


def rate_differences(step: Step, other: Step, rank: int, port: bool) -> Iterator[Difference]:
    """The differences of learning rates; the parameter groups of a port are its own."""
    same_groups = (step.learning_rates, other.learning_rates)
    expected, actual = comparable_rates(step, other) if port else same_groups
    return number_differences("learning rate", expected, actual, step.number, rank, TINY)


def comparable_rates(step: Step, other: Step) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The learning rates of both, group by group; those that there are, where parameters are grouped otherwise."""
    expected, actual = step.learning_rates, other.learning_rates
    if len(expected) == len(actual) and step.layout.names == other.layout.names:
        return expected, actual
    return tuple(sorted(set(expected))), tuple(sorted(set(actual)))


def decision_differences(step: Step, other: Step, rank: int) -> Iterator[Difference]:
    """Facts that numbers in double precision do not show."""
    if step.skipped != other.skipped:
        words = f"{other.skipped} steps skipped by the scaler instead of {step.skipped}"
        yield Difference("decision", np.inf, step.number, rank, words)
    expected, actual = (" and ".join(sorted(set(each.precision))) or "none" for each in (step, other))
    if expected != actual:
        words = f"autocast to {actual} instead of {expected}"
        yield Difference("precision", np.inf, step.number, rank, words)


def casts_on_one_side(
    reference: Trace, ranks: Sequence[Trace], matched: Sequence[Sequence[int]]
) -> Iterator[CastOnOneSide]:
    """Float64 runs hide what they do.

    The whole run is looked at, not each step: a port may cast a batch when it is loaded, a step earlier. `matched`:
    each rank's steps, by DataParallel's.
    """
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
            yield CastOnOneSide(what, what in actual, *(actual.get(what) or expected[what]))


def _seen(trace: Trace, steps: Sequence[int]) -> Seen:
    seen = Seen()
    numbers = {own: number for number, own in enumerate(steps)}
    for own, line in enumerate((*trace.lines, *trace.last_line)):
        for what, place in line["casts"]:
            seen.setdefault(what, (numbers.get(own, len(steps)), trace.rank, place))
    return seen


def stream_differences(number: int, ranks: Sequence[Step]) -> Iterator[Difference]:
    """Different samples that two ranks loaded with the same random numbers: half of an augmentation is lost.

    The verifier gives each sample of a port a stream of its own (runtime/perturb/seeds.py), so gradients
    do not show it.
    """
    drawn: dict[int, tuple[int, set[tuple[int, ...]]]] = {}  # stream -> the first rank, and its samples
    for rank, step in enumerate(ranks):
        for draw in step.draws:
            for stream in draw.streams if draw.indices is not None else ():
                assert draw.indices is not None
                first, samples = drawn.setdefault(stream, (rank, set()))
                if first == rank:  # several batches: what samples draw leaves the script's own streams alone
                    samples.add(draw.indices)
                elif draw.indices not in samples:
                    words = f"the same as on rank {first}, for other samples"
                    yield Difference("random streams", np.inf, number, rank, words)
                    return


def mean_loss_differences(
    step: Step, ranks: Sequence[Step], scale: float, tolerance: Tolerance
) -> Iterator[Difference]:
    """Losses of a port's ranks are their own: each is DataParallel's, or their mean or sum is."""
    whole, parts = sum(step.losses), [sum(rank.losses) for rank in ranks]
    rows = [sum(map(sum, rank.rows)) for rank in ranks]
    share = np.array(rows if all(rows) else [1.0] * len(parts))
    mean = float(np.mean(parts))
    size = max(abs(whole), scale) if np.isfinite(whole) else scale  # an inf is near to no other number
    for together in (mean, float(share @ parts / share.sum()), float(sum(parts))):
        both_nan = np.isnan(whole) and np.isnan(mean)
        if together == whole or abs(together - whole) <= FACTOR * tolerance.epsilon * size or both_nan:
            return
    yield from number_differences("loss", (whole,), (mean,), step.number, 0, scale)


def mean_loss(losses: Sequence[float]) -> float:
    """The mean loss of a step with several backward passes; nan without any."""
    return sum(losses) / len(losses) if losses else float("nan")


def trained_rows(step: Step, ranks: Sequence[Step]) -> tuple[int, ...]:
    """What each rank trained on; what DataParallel gave the device, where ranks do not tell."""
    own = tuple(sum(map(sum, _trained_on(rank))) for rank in ranks)
    given = _trained_on(step)
    return (
        own
        if any(own)
        else tuple(sum(rows[rank] for rows in given if rank < len(rows)) for rank in range(len(ranks)))
    )


def _trained_on(step: Step) -> list[tuple[int, ...]]:
    """The rows of each forward that is trained on; evaluation between two steps does not count, unless the script
    trains in evaluation mode."""
    return [forward.rows for forward in step.forwards if forward.training] or list(step.rows)
