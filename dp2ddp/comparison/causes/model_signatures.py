"""What the model does with its rows: modes, precision, statistics, gradients that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dp2ddp.comparison.causes.catalogue import Finding, finding
from dp2ddp.comparison.causes.evidence import Evidence, MatchedStep, distance, fits, multiple
from dp2ddp.comparison.differences import agreeing, distances_by_sketch, is_batchnorms
from dp2ddp.comparison.tolerance import HIDING
from dp2ddp.trace.digests import Doubles
from dp2ddp.trace.records import SCALED, Vector
from dp2ddp.words import names_text, sum_text


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """The findings of this family that fit the evidence."""
    yield from _casts(evidence)
    if not evidence.is_at_step:
        return
    here = evidence.here
    yield from _modes(here)
    yield from _counted_batches(evidence, here)
    yield from _own_buffers(evidence, here)
    yield from _precision(here)
    if here.whole:
        yield from _missing(here)
        yield from _statistics(evidence, here)
        yield from _other_forward(evidence, here)


def _modes(here: MatchedStep) -> Iterator[Finding]:
    whole, *ranks = ([forward.training for forward in step.forwards] for step in here.all)
    for rank, own in enumerate(ranks):
        if own and (any(whole) != any(own) or (len(whole) == len(own) and whole != own)):
            counts = (
                f"{sum(own)} of {len(own)} on rank {rank}, {sum(whole)} of {len(whole)} under DataParallel"
            )
            yield finding("evaluation-mode", 0.97, f"training forwards of step {here.number}: {counts}")
            return


Buffers = tuple[tuple[str, Doubles, Doubles], ...]  # name, DataParallel's, rank 0's


def _buffers(evidence: Evidence, here: MatchedStep) -> tuple[tuple[str, Buffers], ...]:
    """Just after the step, where their values were kept; when the script ended, if buffers differ first: behind the
    last step an evaluation may follow. Where one side ended at another step that says nothing."""
    left: Buffers = ()
    first, alike = evidence.comparison.first, len(evidence.reference.lines) == len(evidence.ranks[0].lines)
    if first is not None and first.kind == "buffer" and alike:
        expected, actual = evidence.reference.buffers(), evidence.ranks[0].buffers()
        left = tuple(
            (name, _flat(expected[name]), _flat(actual[name])) for name in expected if name in actual
        )
    return (f"after step {here.number}", _kept(here)), ("at the end", left)


def _kept(here: MatchedStep) -> Buffers:
    expected, actual = here.reference.buffers, here.ranks[0].buffers
    if expected is None or actual is None or expected.layout.shapes != actual.layout.shapes:
        return ()
    if expected.layout.names != actual.layout.names or expected.values is None or actual.values is None:
        return ()
    a, b = _flat(expected.values), _flat(actual.values)
    places = zip(expected.layout.names, expected.layout.slices, strict=True)
    return tuple((name, a[place], b[place]) for name, place in places)


def _flat(values: Any) -> Doubles:
    return np.asarray(values, dtype=np.float64).ravel()


def _counted_batches(evidence: Evidence, here: MatchedStep) -> Iterator[Finding]:
    """BatchNorm counts the batches that it was given in training mode; in more, smaller ones it counts more.

    Where ranks have other weights, one of them may have loaded its count with them.
    """
    weights_apart = len(agreeing([rank.parameters for rank in here.ranks])) > 1
    if weights_apart or _forward_counts_differ(evidence, here):
        return
    for when, buffers in _buffers(evidence, here):
        for name, expected, actual in buffers:
            if name.endswith("num_batches_tracked") and expected != actual:
                text = f"{name} is {actual.item():g} on rank 0, {expected.item():g} under DataParallel {when}"
                yield finding("evaluation-mode", 0.97, text)
                return


def _forward_counts_differ(evidence: Evidence, here: MatchedStep) -> tuple[int, int] | None:
    """Forwards in training up to the step, on rank 0 and under DataParallel, where they are not as many."""
    traces = evidence.ranks[0], evidence.reference
    counts = [
        sum(training for line in trace.lines[: here.number + 1] for training, *_ in line["forwards"])
        for trace in traces
    ]
    return (counts[0], counts[1]) if all(counts) and counts[0] != counts[1] else None


def _own_buffers(evidence: Evidence, here: MatchedStep) -> Iterator[Finding]:
    """Buffers that the script updates itself, from rows that are the same on all ranks together."""
    if evidence.other_batch is not None:
        return
    for when, buffers in _buffers(evidence, here):
        differing = [name for name, a, b in buffers if not is_batchnorms(name) and not _same(a, b)]
        if differing:
            text = f"{names_text(differing)} on rank 0 {when}: other than DataParallel's, from the same rows"
            ranks_differ = len({_hashes(rank.buffers, differing.__contains__) for rank in here.ranks}) > 1
            yield finding("buffer-of-local-rows", 0.94, text, *["the ranks differ in it, too"] * ranks_differ)
            return


def _same(a: Doubles, b: Doubles) -> bool:
    return a.shape == b.shape and fits(distance(a, b))


def _hashes(vector: Vector | None, is_meant: Callable[[str], bool]) -> tuple[int, ...]:
    if vector is None:
        return ()
    pairs = zip(vector.hashes.tolist(), vector.layout.names, strict=True)
    return tuple(digest for digest, name in pairs if is_meant(name))


def _is_running(name: str) -> bool:
    return "running_" in name


def _casts(evidence: Evidence) -> Iterator[Finding]:
    comparison = evidence.comparison
    known = {each.name for each in (comparison.first, *comparison.also) if each and each.kind == "precision"}
    for cast in evidence.casts if known else ():
        if (words := cast.difference.name) in known:
            scaler = "scaler-added" if cast.on_ranks else "no-scaler"
            yield finding(scaler if cast.what == SCALED else "half-by-hand", 0.965, words)


def _precision(here: MatchedStep) -> Iterator[Finding]:
    expected, *ranks = (set(step.precision) for step in here.all)
    for rank, own in enumerate(ranks):
        if own != expected:
            texts = [", ".join(sorted(each)) or "none" for each in (own, expected)]
            text = f"autocast on rank {rank}: {texts[0]}; under DataParallel: {texts[1]}"
            yield finding("other-precision", 0.97, text)
            return


def _missing(here: MatchedStep) -> Iterator[Finding]:
    """Gradients that are None on ranks, and what DataParallel has in their place.

    Zeros in their place change no gradient of another parameter.
    """
    layout, gradients = here.reference.layout, here.reference.gradients
    expected = gradients.sketched(layout)
    norms = expected[:, 0]
    for rank, step in enumerate(here.ranks):
        none = np.flatnonzero((step.gradients.hashes == 0) & (gradients.hashes != 0))
        zeros = [layout.names[i] for i in none if norms[i] == 0]
        others = [layout.names[i] for i in none if norms[i] > 0]
        where = f"no gradient on rank {rank} for"
        if others:
            yield finding("no-gradient", 0.96, f"{where} {names_text(others)}")
        if zeros:
            rest = np.setdiff1d(np.arange(len(norms)), none)
            distances = distances_by_sketch(expected[rest], step.gradients.sketched(layout)[rest])
            weight = 0.5 if distances.max(initial=0.0) > HIDING * norms.max() else 0.955
            yield finding("zeros-for-none", weight, f"{where} {names_text(zeros)}: zeros under DataParallel")
        if none.size:
            return


def _statistics(evidence: Evidence, here: MatchedStep) -> Iterator[Finding]:
    """BatchNorm: running statistics after the step, and which rows each rank normalised over."""
    if not statistics_differ(here):
        _, (_, left) = _buffers(evidence, here)
        differing = [name for name, a, b in left if _is_running(name) and not _same(a, b)]
        if differing:
            text = f"{names_text(differing)} of rank 0 at the end are other than replica 0's; training agrees"
            yield finding("buffers-of-another-rank", 0.95, text)
        return
    hashes = {_hashes(rank.buffers, _is_running) for rank in here.ranks}
    together = len(hashes) == 1 and evidence.world > 1
    same_rows = evidence.other_batch is None
    moved = _moved_rows(here)
    # ranks that call the model past its wrapper, on all rows
    wrapped = any(rank.forwards for rank in here.ranks) or not here.reference.forwards
    has_one_loss = bool(here.reference.losses) and len({rank.losses for rank in here.ranks}) == 1
    is_whole_on_each = has_one_loss and not wrapped
    text = f"running statistics of rank 0 after step {here.number} are other than replica 0's"
    if here.gradients_agree and same_rows and (factor := _times_as_far(evidence, here)):
        words = f"{factor:.6g} times as far as replica 0's in step {here.number}"
        yield finding("batchnorm-momentum", 0.97, f"running statistics of rank 0 move {words}")
    elif here.gradients_agree:
        weight = 0.96 if same_rows else 0.9  # a shift of the rows that the normalisation takes away again
        yield finding("buffers-of-another-rank", weight, f"{text}; gradients of that step agree", *moved)
    elif together and is_whole_on_each:
        words = (
            "no wrapped model is called on the ranks, and all have one loss: each computes the whole batch"
        )
        yield finding("repeated-rows", 0.95, words, text)
    elif (counts := _forward_counts_differ(evidence, here)) and same_rows:
        both = f"{counts[0]} on rank 0, {counts[1]} under DataParallel"
        words = f"forwards in training up to step {here.number}: {both}"
        yield finding("batchnorm-rows", 0.95, words, text)
    elif together and same_rows:
        yield finding("sync-batchnorm", 0.95, f"{text}, and the same on all ranks")
    elif not together and same_rows and (moved or not here.batches):
        yield finding("batchnorm-rows", 0.95 if moved else 0.7, *moved, text)


def _times_as_far(evidence: Evidence, here: MatchedStep) -> float:
    """How often as far rank 0's running averages move in the step as replica 0's; 0 if that is no single number."""
    kept = _kept(evidence.before) if evidence.before else ()
    before = {name: values for name, values, _ in kept}
    own, expected = list[Doubles](), list[Doubles]()
    for name, of_replica, of_rank in _kept(here):
        if _is_running(name):
            start = before.get(name, float(name.endswith("var")))  # of a new layer
            own.append(of_rank - start)
            expected.append(of_replica - start)
    if len(own) < 2:  # means and variances
        return 0.0
    factor, left = multiple(np.concatenate(own), np.concatenate(expected))
    return factor if fits(left) and not fits(abs(factor - 1)) else 0.0


def statistics_differ(here: MatchedStep) -> bool:
    """Whether rank 0's running averages are other than replica 0's, which survive under DataParallel."""
    expected, actual = here.reference.buffers, here.ranks[0].buffers
    if expected is None or actual is None or expected.layout.names != actual.layout.names:
        return False
    if expected.values is None or actual.values is None:
        return _hashes(expected, _is_running) != _hashes(actual, _is_running)
    return any(not fits(distance(a, b)) for name, a, b in _kept(here) if _is_running(name))


def _moved_rows(here: MatchedStep) -> tuple[str, ...]:
    """Ranks whose rows are not the chunk of their replica, though all rows together are the same."""
    for batch in here.batches:
        rows = (forward.rows for forward in here.reference.forwards)
        sizes = next((each for each in rows if sum(each) == len(batch.reference)), ())
        if not batch.same or not sizes:
            continue
        begin = 0
        for rank, (size, own) in enumerate(zip(sizes, batch.ranks, strict=False)):
            chunk = batch.reference[begin : begin + size]
            begin += size
            if sorted(chunk) != sorted(own):
                shared, chunks = len(set(chunk) & set(own)), f"chunks {sum_text(sizes)}"
                return (f"rank {rank} has {shared} of replica {rank}'s {size} rows ({chunks})",)
    return ()


def _other_forward(evidence: Evidence, here: MatchedStep) -> Iterator[Finding]:
    """Same weights, same rows, and other gradients on ranks that agree: what is left is the computation."""
    if here.gradients_agree or evidence.other_batch is not None:
        return
    if moved := () if evidence.random_only else _moved_rows(here):
        yield finding("chunks-otherwise", 0.7 if evidence.random_only is False else 0.5, *moved)
    text = "same rows, other gradients"
    if evidence.random_only:
        yield finding("other-random-numbers", 0.97, "with DataParallel's random numbers every step agrees")
    elif evidence.random_only is None:
        yield finding("other-random-numbers", 0.3, f"{text}; random numbers were not aligned")
        yield finding("other-computation", 0.35, text)
    else:
        yield finding("other-computation", 0.6, f"{text}, with DataParallel's random numbers, too")
