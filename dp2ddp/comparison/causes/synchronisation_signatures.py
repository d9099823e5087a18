"""Ranks that do not have the same gradients or weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dp2ddp.comparison.causes.cause import Finding, finding
from dp2ddp.comparison.causes.evidence import Evidence, MatchedStep, distance, fits
from dp2ddp.trace.records import Vector
from dp2ddp.words import names_text, numbers_text


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """The findings of this family that fit the evidence."""
    if not evidence.is_at_step or not evidence.here.whole:
        return
    here = evidence.here
    if differing := _differing(here.unclipped()[1]):
        yield from _gradients(here, differing)
    elif differing := _differing([rank.parameters for rank in here.ranks]):
        parted = names_text([here.reference.layout.names[i] for i in differing])
        text = f"{parted} differ from rank to rank after step {here.number}; their gradients do not"
        yield finding("ranks-part", 0.9, text)


def _differing(vectors: Sequence[Vector]) -> list[int]:
    """Tensors that do not have the same bits on all ranks."""
    hashes = np.stack([each.hashes for each in vectors])
    return [int(place) for place in np.flatnonzero((hashes != hashes[0]).any(axis=0))]


def _gradients(here: MatchedStep, differing: list[int]) -> Iterator[Finding]:
    names = here.reference.layout.names
    clipped = any(rank.clips for rank in here.ranks)
    if clipped and not _differing([rank.gradients for rank in here.ranks]):
        norms = "; ".join(f"rank {i}: {numbers_text(rank.clips)}" for i, rank in enumerate(here.ranks))
        yield finding("clip-before-sync", 0.97, f"norms that clip_grad_norm_ returned: {norms}")
        return
    parted = names_text([names[i] for i in differing])
    text = f"gradients of {parted} differ from rank to rank at step {here.number}"
    if lost := _lost(here, differing):
        yield finding("lost-data", 0.96, *lost)
    if len(differing) == len(names):
        target, *parts = here.raw_gradients
        joined = {"mean": np.mean(parts, axis=0), "sum": np.sum(parts, axis=0)}
        made = [
            f"their {how} is DataParallel's" for how, each in joined.items() if fits(distance(each, target))
        ]
        yield finding("not-synchronised", 0.95 if made else 0.85, text, *made[:1])
    else:
        agreeing = [name for i, name in enumerate(names) if i not in differing]
        yield finding("partly-synchronised", 0.94, text, f"the same on all ranks: {names_text(agreeing)}")


def _lost(here: MatchedStep, differing: list[int]) -> tuple[str, ...]:
    """Zeros on some ranks, DataParallel's numbers on others."""
    layout, (expected, actual) = here.reference.layout, here.unclipped()
    norms = np.stack([each.sketched(layout)[:, 0] for each in actual])
    right = expected.sketched(layout)[:, 0]
    zeros = [
        (i, rank)
        for i in differing
        for rank in range(len(actual))
        if norms[rank, i] == 0 and right[i] > 0 and any(abs(norms[:, i] - right[i]) <= 1e-9 * right[i])
    ]
    return tuple(f"the gradient of {layout.names[i]} is zero on rank {rank}" for i, rank in zeros[:2])
