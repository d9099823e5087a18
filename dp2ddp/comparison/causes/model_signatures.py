"""What the model does with its rows: modes, precision, statistics, gradients that are missing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2ddp.comparison.causes.batch_signatures import batches_of, different_batch
from dp2ddp.comparison.causes.cause import Finding, finding
from dp2ddp.comparison.causes.evidence import (
    Array,
    Evidence,
    MatchedStep,
    distance,
    fits,
    multiple,
    projected,
)
from dp2ddp.comparison.causes.words import names_text, number_text, sum_text
from dp2ddp.comparison.differences import distances_by_sketch
from dp2ddp.comparison.ending import is_batchnorms
from dp2ddp.comparison.tolerance import HIDING
from dp2ddp.trace.records import SCALED, Step, Vector

_MOST_OFF = 1e-6  # of a factor that is 1


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """The findings of this family that fit the evidence."""
    yield from _casts(evidence)
    matched_step = evidence.matched_step
    if matched_step is None:
        return
    yield from _modes(matched_step)
    yield from _counted_batches(evidence, matched_step)
    yield from _own_buffers(evidence, matched_step)
    yield from _precision(matched_step)
    if matched_step.whole:
        yield from _missing(matched_step)
        yield from _statistics(evidence, matched_step)
        yield from _other_forward(evidence, matched_step)


def _modes(matched_step: MatchedStep) -> Iterator[Finding]:
    expected = [forward.training for forward in matched_step.reference.forwards]
    for rank, step in enumerate(matched_step.ranks):
        actual = [forward.training for forward in step.forwards]
        if actual and (any(expected) != any(actual) or (len(expected) == len(actual) and expected != actual)):
            yield finding(
                "evaluation-mode",
                0.97,
                f"training forwards of step {matched_step.number}: {sum(actual)} of {len(actual)} on rank {rank}, "
                f"{sum(expected)} of {len(expected)} under DataParallel",
            )
            return


Buffers = tuple[tuple[str, Array, Array], ...]  # name, DataParallel's, rank 0's


def _counted_batches(evidence: Evidence, matched_step: MatchedStep) -> Iterator[Finding]:
    """BatchNorm counts the batches that it was given in training mode; in more, smaller ones it counts more."""
    if _forward_counts_differ(evidence, matched_step):
        return
    for when, buffers in (
        (f"after step {matched_step.number}", _buffers(matched_step)),
        ("at the end", _left(evidence)),
    ):
        for name, expected, actual in buffers:
            if name.endswith("num_batches_tracked") and expected != actual:
                text = f"{name} is {actual.item():g} on rank 0, {expected.item():g} under DataParallel {when}"
                yield finding("evaluation-mode", 0.97, text)
                return


def _forward_counts_differ(evidence: Evidence, matched_step: MatchedStep) -> tuple[int, int] | None:
    """Forwards in training up to the step, on rank 0 and under DataParallel, where they are not as many."""
    traces = evidence.ranks[0], evidence.reference
    counts = [
        sum(training for line in trace.lines[: matched_step.number + 1] for training, *_ in line["forwards"])
        for trace in traces
    ]
    return (counts[0], counts[1]) if all(counts) and counts[0] != counts[1] else None


def _own_buffers(evidence: Evidence, matched_step: MatchedStep) -> Iterator[Finding]:
    """Buffers that the script updates itself, from rows that are the same on all ranks together."""
    if different_batch(evidence) is not None:
        return
    for when, buffers in (
        (f"after step {matched_step.number}", _buffers(matched_step)),
        ("at the end", _left(evidence)),
    ):
        differing = [
            name
            for name, expected, actual in buffers
            if not is_batchnorms(name) and not _same(expected, actual)
        ]
        if differing:
            text = f"{names_text(differing)} on rank 0 {when}: other than DataParallel's, from the same rows"
            ranks_differ = len({_own_hashes(rank.buffers, differing) for rank in matched_step.ranks}) > 1
            yield finding("buffer-of-local-rows", 0.94, text, *["the ranks differ in it, too"] * ranks_differ)
            return


def _same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and fits(distance(a, b))


def _own_hashes(vector: Vector | None, names: list[str]) -> tuple[int, ...]:
    if vector is None:
        return ()
    return tuple(
        int(digest) for digest, name in zip(vector.hashes, vector.layout.names, strict=True) if name in names
    )


def _buffers(matched_step: MatchedStep) -> Buffers:
    """Just after the step, where their values were kept."""
    expected, actual = matched_step.reference.buffers, matched_step.ranks[0].buffers
    if expected is None or actual is None or expected.layout != actual.layout:
        return ()
    if expected.values is None or actual.values is None:
        return ()
    a, b = (np.asarray(each.values, dtype=np.float64) for each in (expected, actual))
    return tuple(
        (name, a[at], b[at]) for name, at in zip(expected.layout.names, expected.layout.slices, strict=True)
    )


def _left(evidence: Evidence) -> Buffers:
    """When the script ended, if nothing but buffers differs: behind the last step an evaluation may follow."""
    first = evidence.comparison.first
    if first is None or first.kind != "buffer":
        return ()
    expected, actual = evidence.reference.buffers(), evidence.ranks[0].buffers()
    return tuple(
        (name, np.asarray(expected[name], dtype=np.float64).ravel(), np.asarray(actual[name], dtype=np.float64).ravel())
        for name in expected
        if name in actual
    )  # fmt: skip


def _casts(evidence: Evidence) -> Iterator[Finding]:
    comparison = evidence.comparison
    found_ones = () if comparison.first is None else (comparison.first, *comparison.also)
    for each in found_ones:
        if each.kind == "precision" and " only, at " in each.name:
            scaler = "no-scaler" if "under DataParallel only" in each.name else "scaler-added"
            yield finding(scaler if each.name.startswith(SCALED) else "half-by-hand", 0.965, each.name)


def _precision(matched_step: MatchedStep) -> Iterator[Finding]:
    expected = set(matched_step.reference.precision)
    for rank, step in enumerate(matched_step.ranks):
        if set(step.precision) != expected:
            actual = ", ".join(sorted(set(step.precision))) or "none"
            yield finding(
                "other-precision",
                0.97,
                f"autocast on rank {rank}: {actual}; under DataParallel: {', '.join(sorted(expected)) or 'none'}",
            )
            return


def _missing(matched_step: MatchedStep) -> Iterator[Finding]:
    """Gradients that are None on ranks, and what DataParallel has in their place.

    Zeros in their place change no gradient of another parameter.
    """
    layout = matched_step.reference.layout
    expected = matched_step.reference.gradients.sketched(layout)
    norms = expected[:, 0]
    for rank, step in enumerate(matched_step.ranks):
        none = np.flatnonzero((step.gradients.hashes == 0) & (matched_step.reference.gradients.hashes != 0))
        zeros = [layout.names[i] for i in none if norms[i] == 0]
        others = [layout.names[i] for i in none if norms[i] > 0]
        if others:
            yield finding("no-gradient", 0.96, f"no gradient on rank {rank} for {names_text(others)}")
        if zeros:
            rest = np.setdiff1d(np.arange(len(norms)), none)
            distances = distances_by_sketch(expected[rest], step.gradients.sketched(layout)[rest])
            yield finding(
                "zeros-for-none",
                0.5 if distances.max(initial=0.0) > HIDING * norms.max() else 0.955,
                f"no gradient on rank {rank} for {names_text(zeros)}: zeros under DataParallel",
            )
        if none.size:
            return


def _statistics(evidence: Evidence, matched_step: MatchedStep) -> Iterator[Finding]:
    """BatchNorm: running statistics after the step, and which rows each rank normalised over."""
    if not statistics_differ(matched_step):
        yield from _statistics_left(evidence)
        return
    together = len({_running_hashes(rank.buffers) for rank in matched_step.ranks}) == 1 and evidence.world > 1
    moved = _moved_rows(matched_step)
    text = f"running statistics of rank 0 after step {matched_step.number} are other than replica 0's"
    if fits(_gradient_distance(matched_step)):
        if factor := _momentum_factor(evidence, matched_step):
            words = f"running means of rank 0 move {number_text(factor)} times as far"
            yield finding("batchnorm-momentum", 0.97, words, text)
        yield finding("buffers-of-another-rank", 0.96, f"{text}; gradients of that step agree", *moved)
    elif together and _whole_batch_on_each(matched_step):
        words = (
            "no wrapped model is called on the ranks, and all have one loss: each computes the whole batch"
        )
        yield finding("repeated-rows", 0.95, words, text)
    elif (counts := _forward_counts_differ(evidence, matched_step)) and different_batch(evidence) is None:
        words = "forwards in training up to step {}: {} on rank 0, {} under DataParallel".format(
            matched_step.number, *counts
        )
        yield finding("batchnorm-rows", 0.95, words, text)
    elif together and different_batch(evidence) is None:
        yield finding("sync-batchnorm", 0.95, f"{text}, and the same on all ranks")
    elif not together and different_batch(evidence) is None and (moved or not batches_of(matched_step)):
        yield finding("batchnorm-rows", 0.95 if moved else 0.7, *moved, text)


def _momentum_factor(evidence: Evidence, matched_step: MatchedStep) -> float | None:
    """How many times as far as replica 0's rank 0's running means move in a step; None: not by one number.

    A mean moves by momentum * (the batch's mean - it). It begins at zero.
    """
    before = evidence.before
    expected = _running_means(matched_step.reference.buffers)
    actual = _running_means(matched_step.ranks[0].buffers)
    old = _running_means(before.reference.buffers) if before else np.zeros(len(expected))
    if not len(expected) or len({len(expected), len(actual), len(old)}) > 1:
        return None
    factor, left = multiple(actual - old, expected - old)
    return factor if fits(left) and factor > 0 and abs(factor - 1) > _MOST_OFF else None


def _running_means(vector: Vector | None) -> Array:
    if vector is None or vector.values is None:
        return np.zeros(0)
    values, layout = np.asarray(vector.values, dtype=np.float64), vector.layout
    means = [values[layout.slices[i]] for i, name in enumerate(layout.names) if name.endswith("running_mean")]
    return np.concatenate([np.zeros(0), *means])


def _whole_batch_on_each(matched_step: MatchedStep) -> bool:
    """Ranks that call the model past its wrapper, on all rows."""
    wrapped = any(rank.forwards for rank in matched_step.ranks) or not matched_step.reference.forwards
    return (
        not wrapped
        and bool(matched_step.reference.losses)
        and len({rank.losses for rank in matched_step.ranks}) == 1
    )


def _statistics_left(evidence: Evidence) -> Iterator[Finding]:
    differing = [name for name, a, b in _left(evidence) if "running_" in name and not _same(a, b)]
    if differing:
        text = f"{names_text(differing)} of rank 0 at the end are other than replica 0's; training agrees"
        yield finding("buffers-of-another-rank", 0.95, text)


def statistics_differ(matched_step: MatchedStep) -> bool:
    """Whether rank 0's running averages are other than replica 0's, which survive under DataParallel."""
    expected, actual = matched_step.reference.buffers, matched_step.ranks[0].buffers
    if expected is None or actual is None or expected.layout.names != actual.layout.names:
        return False
    if expected.values is None or actual.values is None:
        return _running_hashes(expected) != _running_hashes(actual)
    a, b = (np.asarray(each.values, dtype=np.float64) for each in (expected, actual))
    return any(
        not fits(distance(a[place], b[place]))
        for i in _running(expected)
        for place in [expected.layout.slices[i]]
    )


def _running(vector: Vector) -> list[int]:
    return [i for i, name in enumerate(vector.layout.names) if "running_" in name]


def _running_hashes(vector: Vector | None) -> tuple[int, ...]:
    return () if vector is None else tuple(int(vector.hashes[i]) for i in _running(vector))


def _gradient_distance(matched_step: MatchedStep) -> float:
    layout = matched_step.reference.layout
    return distance(
        projected(matched_step.reference.gradients, layout),
        projected(matched_step.ranks[0].gradients, layout),
    )


def _moved_rows(matched_step: MatchedStep) -> tuple[str, ...]:
    """Ranks whose rows are not the chunk of their replica, though all rows together are the same."""
    for batch in batches_of(matched_step):
        sizes = _replica_rows(matched_step.reference, len(batch.reference))
        if not batch.same or not sizes:
            continue
        begin = 0
        for rank, (size, rows) in enumerate(zip(sizes, batch.ranks, strict=False)):
            chunk = batch.reference[begin : begin + size]
            begin += size
            if sorted(chunk) != sorted(rows):
                shared = len(set(chunk) & set(rows))
                return (
                    f"rank {rank} has {shared} of replica {rank}'s {size} rows (chunks {sum_text(sizes)})",
                )
    return ()


def _replica_rows(step: Step, total: int) -> tuple[int, ...]:
    return next((forward.rows for forward in step.forwards if sum(forward.rows) == total), ())


def _other_forward(evidence: Evidence, matched_step: MatchedStep) -> Iterator[Finding]:
    """Same weights, same rows, and other gradients on ranks that agree: what is left is the computation."""
    if fits(_gradient_distance(matched_step)) or different_batch(evidence) is not None:
        return
    if moved := () if evidence.random_only else _moved_rows(matched_step):
        yield finding("chunks-otherwise", 0.7 if evidence.random_only is False else 0.5, *moved)
    if evidence.random_only:
        yield finding("other-random-numbers", 0.97, "with DataParallel's random numbers every step agrees")
    elif evidence.random_only is None:
        yield finding(
            "other-random-numbers", 0.3, "same rows, other gradients; random numbers were not aligned"
        )
        yield finding("other-computation", 0.35, "same rows, other gradients")
    else:
        yield finding(
            "other-computation", 0.6, "same rows, other gradients, with DataParallel's random numbers, too"
        )
