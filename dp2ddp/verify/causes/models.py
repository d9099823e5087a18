"""What the model does with its rows: modes, precision, statistics, gradients that are missing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2ddp.trace.records import SCALED, Step, Vector
from dp2ddp.verify.causes.batches import batches_of, different_batch
from dp2ddp.verify.causes.cause import Found, found
from dp2ddp.verify.causes.evidence import Array, Evidence, Scene, distance, fits, projected
from dp2ddp.verify.causes.words import names_text, sum_text


def signatures(evidence: Evidence) -> Iterator[Found]:
    yield from _casts(evidence)
    scene = evidence.scene
    if scene is None:
        return
    yield from _modes(scene)
    yield from _counted_batches(evidence, scene)
    yield from _own_buffers(evidence, scene)
    yield from _precision(scene)
    if scene.whole:
        yield from _missing(scene)
        yield from _statistics(evidence, scene)
        yield from _other_forward(evidence, scene)


def _modes(scene: Scene) -> Iterator[Found]:
    ours = [forward.training for forward in scene.reference.forwards]
    for rank, step in enumerate(scene.ranks):
        theirs = [forward.training for forward in step.forwards]
        if theirs and (any(ours) != any(theirs) or (len(ours) == len(theirs) and ours != theirs)):
            yield found(
                "evaluation-mode",
                0.97,
                f"training forwards of step {scene.number}: {sum(theirs)} of {len(theirs)} on rank {rank}, "
                f"{sum(ours)} of {len(ours)} under DataParallel",
            )
            return


Buffers = tuple[tuple[str, Array, Array], ...]  # name, DataParallel's, rank 0's


def _counted_batches(evidence: Evidence, scene: Scene) -> Iterator[Found]:
    """BatchNorm counts the batches that it was given in training mode; in more, smaller ones it counts more."""
    if _forwards_apart(evidence, scene):
        return
    for when, buffers in ((f"after step {scene.number}", _buffers(scene)), ("at the end", _left(evidence))):
        for name, ours, theirs in buffers:
            if name.endswith("num_batches_tracked") and ours != theirs:
                told = f"{name} is {theirs.item():g} on rank 0, {ours.item():g} under DataParallel {when}"
                yield found("evaluation-mode", 0.97, told)
                return


def _forwards_apart(evidence: Evidence, scene: Scene) -> tuple[int, int] | None:
    """Forwards in training up to the step, on rank 0 and under DataParallel, where they are not as many."""
    traces = evidence.ranks[0], evidence.reference
    counts = [
        sum(training for line in trace.lines[: scene.number + 1] for training, *_ in line["forwards"])
        for trace in traces
    ]
    return (counts[0], counts[1]) if all(counts) and counts[0] != counts[1] else None


def _own_buffers(evidence: Evidence, scene: Scene) -> Iterator[Found]:
    """Buffers that the script updates itself, from rows that are the same on all ranks together."""
    if different_batch(evidence) is not None:
        return
    for when, buffers in ((f"after step {scene.number}", _buffers(scene)), ("at the end", _left(evidence))):
        away = [name for name, ours, theirs in buffers if not of_batchnorm(name) and not _same(ours, theirs)]
        if away:
            told = f"{names_text(away)} on rank 0 {when}: other than DataParallel's, from the same rows"
            apart = len({_own_hashes(rank.buffers, away) for rank in scene.ranks}) > 1
            yield found("buffer-of-local-rows", 0.94, told, *["the ranks differ in it, too"] * apart)
            return


def of_batchnorm(name: str) -> bool:
    return "running_" in name or name.endswith("num_batches_tracked")


def _same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and fits(distance(a, b))


def _own_hashes(vector: Vector | None, names: list[str]) -> tuple[int, ...]:
    if vector is None:
        return ()
    return tuple(
        int(one) for one, name in zip(vector.hashes, vector.layout.names, strict=True) if name in names
    )


def _buffers(scene: Scene) -> Buffers:
    """Just after the step, where their values were kept."""
    ours, theirs = scene.reference.buffers, scene.ranks[0].buffers
    if ours is None or theirs is None or ours.layout != theirs.layout:
        return ()
    if ours.values is None or theirs.values is None:
        return ()
    a, b = (np.asarray(each.values, dtype=np.float64) for each in (ours, theirs))
    return tuple((name, a[at], b[at]) for name, at in zip(ours.layout.names, ours.layout.slices, strict=True))


def _left(evidence: Evidence) -> Buffers:
    """When the script ended, if nothing but buffers differs: behind the last step an evaluation may follow."""
    first = evidence.comparison.first
    if first is None or first.kind != "buffer":
        return ()
    ours, theirs = evidence.reference.buffers(), evidence.ranks[0].buffers()
    return tuple(
        (name, np.asarray(ours[name], dtype=np.float64).ravel(), np.asarray(theirs[name], dtype=np.float64).ravel())
        for name in ours
        if name in theirs
    )  # fmt: skip


def _casts(evidence: Evidence) -> Iterator[Found]:
    comparison = evidence.comparison
    found_ones = () if comparison.first is None else (comparison.first, *comparison.also)
    for each in found_ones:
        if each.kind == "precision" and " only, at " in each.name:
            scaler = "no-scaler" if "under DataParallel only" in each.name else "scaler-added"
            yield found(scaler if each.name.startswith(SCALED) else "half-by-hand", 0.965, each.name)


def _precision(scene: Scene) -> Iterator[Found]:
    ours = set(scene.reference.precision)
    for rank, step in enumerate(scene.ranks):
        if set(step.precision) != ours:
            theirs = ", ".join(sorted(set(step.precision))) or "none"
            yield found(
                "other-precision",
                0.97,
                f"autocast on rank {rank}: {theirs}; under DataParallel: {', '.join(sorted(ours)) or 'none'}",
            )
            return


def _missing(scene: Scene) -> Iterator[Found]:
    """Gradients that are None on ranks, and what DataParallel has in their place."""
    layout = scene.reference.layout
    norms = scene.reference.gradients.sketched(layout)[:, 0]
    for rank, step in enumerate(scene.ranks):
        none = np.flatnonzero((step.gradients.hashes == 0) & (scene.reference.gradients.hashes != 0))
        zeros = [layout.names[i] for i in none if norms[i] == 0]
        others = [layout.names[i] for i in none if norms[i] > 0]
        if others:
            yield found("no-gradient", 0.96, f"no gradient on rank {rank} for {names_text(others)}")
        if zeros:
            yield found(
                "zeros-for-none",
                0.955,
                f"no gradient on rank {rank} for {names_text(zeros)}: zeros under DataParallel",
            )
        if none.size:
            return


def _statistics(evidence: Evidence, scene: Scene) -> Iterator[Found]:
    """BatchNorm: running statistics after the step, and which rows each rank normalised over."""
    if not _statistics_away(scene):
        yield from _statistics_left(evidence)
        return
    together = len({_running_hashes(rank.buffers) for rank in scene.ranks}) == 1 and evidence.world > 1
    moved = _moved_rows(scene)
    told = f"running statistics of rank 0 after step {scene.number} are other than replica 0's"
    if fits(_gradients_away(scene)):
        yield found("buffers-of-another-rank", 0.96, f"{told}; gradients of that step agree", *moved)
    elif together and _whole_batch_on_each(scene):
        words = (
            "no wrapped model is called on the ranks, and all have one loss: each computes the whole batch"
        )
        yield found("repeated-rows", 0.95, words, told)
    elif (counts := _forwards_apart(evidence, scene)) and different_batch(evidence) is None:
        words = "forwards in training up to step {}: {} on rank 0, {} under DataParallel".format(
            scene.number, *counts
        )
        yield found("batchnorm-rows", 0.95, words, told)
    elif together and different_batch(evidence) is None:
        yield found("sync-batchnorm", 0.95, f"{told}, and the same on all ranks")
    elif not together and different_batch(evidence) is None and (moved or not batches_of(scene)):
        yield found("batchnorm-rows", 0.95 if moved else 0.7, *moved, told)


def _whole_batch_on_each(scene: Scene) -> bool:
    """Ranks that call the model past its wrapper, on all rows."""
    wrapped = any(rank.forwards for rank in scene.ranks) or not scene.reference.forwards
    return not wrapped and bool(scene.reference.losses) and len({rank.losses for rank in scene.ranks}) == 1


def _statistics_left(evidence: Evidence) -> Iterator[Found]:
    away = [name for name, a, b in _left(evidence) if "running_" in name and not _same(a, b)]
    if away:
        told = f"{names_text(away)} of rank 0 at the end are other than replica 0's; training agrees"
        yield found("buffers-of-another-rank", 0.95, told)


def _statistics_away(scene: Scene) -> bool:
    """Whether rank 0's running averages are other than replica 0's, which survive under DataParallel."""
    ours, theirs = scene.reference.buffers, scene.ranks[0].buffers
    if ours is None or theirs is None or ours.layout.names != theirs.layout.names:
        return False
    if ours.values is None or theirs.values is None:
        return _running_hashes(ours) != _running_hashes(theirs)
    a, b = (np.asarray(each.values, dtype=np.float64) for each in (ours, theirs))
    return any(
        not fits(distance(a[place], b[place])) for i in _running(ours) for place in [ours.layout.slices[i]]
    )


def _running(vector: Vector) -> list[int]:
    return [i for i, name in enumerate(vector.layout.names) if "running_" in name]


def _running_hashes(vector: Vector | None) -> tuple[int, ...]:
    return () if vector is None else tuple(int(vector.hashes[i]) for i in _running(vector))


def _gradients_away(scene: Scene) -> float:
    layout = scene.reference.layout
    return distance(projected(scene.reference.gradients, layout), projected(scene.ranks[0].gradients, layout))


def _moved_rows(scene: Scene) -> tuple[str, ...]:
    """Ranks whose rows are not the chunk of their replica, though all rows together are the same."""
    for batch in batches_of(scene):
        sizes = _replica_rows(scene.reference, len(batch.reference))
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


def _other_forward(evidence: Evidence, scene: Scene) -> Iterator[Found]:
    """Same weights, same rows, and other gradients on ranks that agree: what is left is the computation."""
    if fits(_gradients_away(scene)) or different_batch(evidence) is not None:
        return
    if moved := () if evidence.random_only else _moved_rows(scene):
        yield found("chunks-otherwise", 0.7 if evidence.random_only is False else 0.5, *moved)
    if evidence.random_only:
        yield found("other-random-numbers", 0.97, "with DataParallel's random numbers every step agrees")
    elif evidence.random_only is None:
        yield found(
            "other-random-numbers", 0.3, "same rows, other gradients; random numbers were not aligned"
        )
        yield found("other-computation", 0.35, "same rows, other gradients")
    else:
        yield found(
            "other-computation", 0.6, "same rows, other gradients, with DataParallel's random numbers, too"
        )
