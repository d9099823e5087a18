"""Ranks that do not have the same gradients or weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dp2ddp.trace.records import Vector
from dp2ddp.verify.causes.cause import Found, found
from dp2ddp.verify.causes.evidence import Evidence, Scene, distance, fits, projected
from dp2ddp.verify.causes.words import names_text


def signatures(evidence: Evidence) -> Iterator[Found]:
    scene = evidence.scene
    if scene is None or not scene.whole:
        return
    apart = _apart(scene.unclipped()[1])
    if apart:
        yield from _gradients(scene, apart)
    else:
        yield from _parameters(scene)


def _apart(vectors: Sequence[Vector]) -> list[int]:
    """Tensors that do not have the same bits on all ranks."""
    return [
        i
        for i, hashes in enumerate(zip(*(each.hashes for each in vectors), strict=True))
        if len({*hashes}) > 1
    ]


def _gradients(scene: Scene, apart: list[int]) -> Iterator[Found]:
    names = scene.reference.layout.names
    clipped = any(rank.clips for rank in scene.ranks)
    if clipped and not _apart([rank.gradients for rank in scene.ranks]):
        norms = "; ".join(
            f"rank {i}: {', '.join(f'{n:.6g}' for n in r.clips)}" for i, r in enumerate(scene.ranks)
        )
        yield found("clip-before-sync", 0.97, f"norms that clip_grad_norm_ returned: {norms}")
        return
    figures = [
        f"gradients of {names_text([names[i] for i in apart])} differ from rank to rank at step {scene.number}"
    ]
    if lost := _lost(scene, apart):
        yield found("lost-data", 0.96, *lost)
    if len(apart) == len(names):
        made = _made_of(scene)
        yield found("not-synchronised", 0.95 if made else 0.85, *figures, *made)
    else:
        agreeing = [name for i, name in enumerate(names) if i not in apart]
        yield found("partly-synchronised", 0.94, *figures, f"the same on all ranks: {names_text(agreeing)}")


def _made_of(scene: Scene) -> tuple[str, ...]:
    """How the ranks' gradients together are DataParallel's."""
    ours, theirs = scene.unclipped()
    target = projected(ours, scene.reference.layout)
    parts = np.stack([projected(each, scene.reference.layout) for each in theirs])
    if fits(distance(parts.mean(axis=0), target)):
        return ("their mean is DataParallel's",)
    return ("their sum is DataParallel's",) if fits(distance(parts.sum(axis=0), target)) else ()


def _lost(scene: Scene, apart: list[int]) -> tuple[str, ...]:
    """Zeros on some ranks, DataParallel's numbers on others."""
    ours, theirs = scene.unclipped()
    layout = scene.reference.layout
    norms = np.stack([each.sketched(layout)[:, 0] for each in theirs])
    wanted = ours.sketched(layout)[:, 0]
    zeros = [
        (i, rank)
        for i in apart
        for rank in range(len(theirs))
        if norms[rank, i] == 0 and wanted[i] > 0 and any(abs(norms[:, i] - wanted[i]) <= 1e-9 * wanted[i])
    ]
    return tuple(f"the gradient of {layout.names[i]} is zero on rank {rank}" for i, rank in zeros[:2])


def _parameters(scene: Scene) -> Iterator[Found]:
    """The same gradients on all ranks, and other weights."""
    names = scene.reference.layout.names
    apart = _apart([rank.parameters for rank in scene.ranks])
    if apart:
        parted = names_text([names[i] for i in apart])
        yield found(
            "ranks-part",
            0.9,
            f"{parted} differ from rank to rank after step {scene.number}; their gradients do not",
        )
