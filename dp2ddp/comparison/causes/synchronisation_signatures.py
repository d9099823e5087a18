"""Ranks that do not have the same gradients or weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dp2ddp.comparison.causes.cause import Finding, finding
from dp2ddp.comparison.causes.evidence import Evidence, MatchedStep, distance, fits, projected
from dp2ddp.comparison.causes.words import names_text
from dp2ddp.trace.records import Vector


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """The findings of this family that fit the evidence."""
    matched_step = evidence.matched_step
    if matched_step is None or not matched_step.whole:
        return
    differing = _differing(matched_step.unclipped()[1])
    if differing:
        yield from _gradients(matched_step, differing)
    else:
        yield from _parameters(matched_step)


def _differing(vectors: Sequence[Vector]) -> list[int]:
    """Tensors that do not have the same bits on all ranks."""
    return [
        i
        for i, hashes in enumerate(zip(*(each.hashes for each in vectors), strict=True))
        if len({*hashes}) > 1
    ]


def _gradients(matched_step: MatchedStep, differing: list[int]) -> Iterator[Finding]:
    names = matched_step.reference.layout.names
    clipped = any(rank.clips for rank in matched_step.ranks)
    if clipped and not _differing([rank.gradients for rank in matched_step.ranks]):
        norms = "; ".join(
            f"rank {i}: {', '.join(f'{n:.6g}' for n in r.clips)}" for i, r in enumerate(matched_step.ranks)
        )
        yield finding("clip-before-sync", 0.97, f"norms that clip_grad_norm_ returned: {norms}")
        return
    figures = [
        f"gradients of {names_text([names[i] for i in differing])} differ from rank to rank at step "
        f"{matched_step.number}"
    ]
    if lost := _lost(matched_step, differing):
        yield finding("lost-data", 0.96, *lost)
    if len(differing) == len(names):
        made = _made_of(matched_step)
        yield finding("not-synchronised", 0.95 if made else 0.85, *figures, *made)
    else:
        agreeing = [name for i, name in enumerate(names) if i not in differing]
        yield finding("partly-synchronised", 0.94, *figures, f"the same on all ranks: {names_text(agreeing)}")


def _made_of(matched_step: MatchedStep) -> tuple[str, ...]:
    """How the ranks' gradients together are DataParallel's."""
    expected, actual = matched_step.unclipped()
    target = projected(expected, matched_step.reference.layout)
    parts = np.stack([projected(each, matched_step.reference.layout) for each in actual])
    if fits(distance(parts.mean(axis=0), target)):
        return ("their mean is DataParallel's",)
    return ("their sum is DataParallel's",) if fits(distance(parts.sum(axis=0), target)) else ()


def _lost(matched_step: MatchedStep, differing: list[int]) -> tuple[str, ...]:
    """Zeros on some ranks, DataParallel's numbers on others."""
    expected, actual = matched_step.unclipped()
    layout = matched_step.reference.layout
    norms = np.stack([each.sketched(layout)[:, 0] for each in actual])
    expected_norms = expected.sketched(layout)[:, 0]
    zeros = [
        (i, rank)
        for i in differing
        for rank in range(len(actual))
        if norms[rank, i] == 0
        and expected_norms[i] > 0
        and any(abs(norms[:, i] - expected_norms[i]) <= 1e-9 * expected_norms[i])
    ]
    return tuple(f"the gradient of {layout.names[i]} is zero on rank {rank}" for i, rank in zeros[:2])


def _parameters(matched_step: MatchedStep) -> Iterator[Finding]:
    """The same gradients on all ranks, and other weights."""
    names = matched_step.reference.layout.names
    differing = _differing([rank.parameters for rank in matched_step.ranks])
    if differing:
        parted = names_text([names[i] for i in differing])
        yield finding(
            "ranks-part",
            0.9,
            f"{parted} differ from rank to rank after step {matched_step.number}; their gradients do not",
        )
