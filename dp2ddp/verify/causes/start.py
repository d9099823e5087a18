"""Before the first step: weights, and what the optimizer was given."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2ddp.trace.records import Layout, Vector
from dp2ddp.verify.causes.cause import Found, found
from dp2ddp.verify.causes.evidence import Evidence, Scene
from dp2ddp.verify.causes.words import names_text, ranks_text
from dp2ddp.verify.matching import plain_name

_ROUNDING = 1e-12  # the same numbers, got in another way


def signatures(evidence: Evidence) -> Iterator[Found]:
    if evidence.comparison.first is None:
        return
    yield from _initial(evidence)
    if evidence.scene is not None:
        yield from _layout(evidence, evidence.scene)
        yield from _nothing_reached(evidence.scene)


def _initial(evidence: Evidence) -> Iterator[Found]:
    ours, theirs = evidence.reference.initial(), [trace.initial() for trace in evidence.ranks]
    names = ours.layout.names
    if not names or any(each.layout.shapes != ours.layout.shapes for each in theirs):
        return
    # parameters alone: buffers may start apart, for DDP sends rank 0's with the first forward
    known = {name for layout in evidence.reference.layouts for name in layout.names}
    places = [i for i, name in enumerate(names) if name in known]
    apart = [names[i] for i in places if any(not _same(theirs[0], each, i) for each in theirs[1:])]
    away = [names[i] for i in places if any(not _same(ours, each, i) for each in theirs)]
    if apart:
        yield found("ranks-start-apart", 0.99, f"before the first step ranks differ in {names_text(apart)}")
    elif away and evidence.other_draw:
        yield found(
            "other-seed",
            0.99,
            f"before the first step {names_text(away)} of {len(places)} tensors are other than DataParallel's",
            "they are as large, and distributed as its are; all ranks agree with each other",
        )
    elif away:
        yield found(
            "initial-state",
            0.99,
            f"before the first step {names_text(away)} of {len(places)} tensors are other than DataParallel's",
            "all ranks agree with each other",
        )


def _same(a: Vector, b: Vector, index: int) -> bool:
    if a.hashes[index] == b.hashes[index]:
        return True
    ours, theirs = (each.sketched(each.layout)[index] for each in (a, b))
    return bool(np.abs(ours - theirs).max() <= _ROUNDING * max(abs(ours[0]), 1e-300))


def _more_optimizers(evidence: Evidence, rank: int) -> bool:
    """Whether one side makes more optimizers, of the same parameters."""
    ours, theirs = (
        {(line["optimizer"], trace.layouts[line["layout"]].shapes) for line in trace.lines}
        for trace in (evidence.reference, evidence.ranks[rank])
    )
    return len(ours) != len(theirs) and {shapes for _, shapes in ours} == {shapes for _, shapes in theirs}


def _layout(evidence: Evidence, scene: Scene) -> Iterator[Found]:
    others = {layout.shapes for layout in evidence.reference.layouts} - {scene.reference.layout.shapes}
    for rank, step in enumerate(scene.ranks):
        if step.optimizer != scene.reference.optimizer and _more_optimizers(evidence, rank):
            known = step.optimizer in {
                line["optimizer"] for line in evidence.ranks[rank].lines[: scene.number]
            }
            side = "under DataParallel" if known else f"on rank {rank}"
            yield found(
                "optimizer-made-anew",
                0.99,
                f"in step {scene.number} an optimizer that is new {side} steps {names_text(step.layout.names)}",
            )
            return
        if step.optimizer != scene.reference.optimizer or step.layout.shapes in others:
            yield found(
                "other-optimizer-order",
                0.99,
                f"in step {scene.number} the optimizer of {names_text(step.layout.names)} steps on rank "
                f"{rank}, "
                f"that of {names_text(scene.reference.layout.names)} under DataParallel",
            )
            return
        ours, theirs = (_shapes(each.layout) for each in (scene.reference, step))
        if ours != theirs and len(ours) == len(scene.reference.layout.names):
            yield _of_other_parameters(ours, theirs, rank)
            return


def _shapes(layout: Layout) -> dict[str, tuple[int, ...]]:
    return dict(zip(map(plain_name, layout.names), layout.shapes, strict=True))


def _of_other_parameters(
    ours: dict[str, tuple[int, ...]], theirs: dict[str, tuple[int, ...]], rank: int
) -> Found:
    """Some of the other's, or another model's."""
    counts = f"the optimizer has {len(theirs)} parameters on rank {rank}, {len(ours)} under DataParallel"
    only = [sorted(a.keys() - b.keys()) for a, b in ((theirs, ours), (ours, theirs))]
    told = [
        f"only {side}: {names_text(names)}"
        for side, names in zip((f"on rank {rank}", "under DataParallel"), only, strict=True)
        if names
    ]
    apart = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    told += [f"{name} is {_size(theirs[name])}, under DataParallel {_size(ours[name])}" for name in apart[:2]]
    return found(
        "other-model" if all(only) or apart else "other-parameters", 0.991 if apart else 0.97, counts, *told
    )


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"


def _nothing_reached(scene: Scene) -> Iterator[Found]:
    empty = [rank for rank, step in enumerate(scene.ranks) if not step.gradients.hashes.any()]
    if empty and scene.reference.gradients.hashes.any():
        yield found(
            "optimizer-of-others",
            0.985,
            f"no parameter of the optimizer has a gradient on {ranks_text(empty)}",
        )
