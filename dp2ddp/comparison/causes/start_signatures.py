"""Before the first step: weights, and what the optimizer was given."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2ddp.comparison.causes.cause import Finding, finding
from dp2ddp.comparison.causes.evidence import Evidence, MatchedStep
from dp2ddp.comparison.causes.words import names_text, ranks_text
from dp2ddp.comparison.matching import plain_name
from dp2ddp.trace.records import Layout, Vector

_ROUNDING = 1e-12  # the same numbers, got in another way


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """The findings of this family that fit the evidence."""
    if evidence.comparison.first is None:
        return
    if evidence.by_hashes:
        yield finding(
            "order-of-sets", 0.995, "the same ranks train the same, in float32, with one PYTHONHASHSEED"
        )
    yield from _initial(evidence)
    if evidence.matched_step is not None:
        yield from _layout(evidence, evidence.matched_step)
        yield from _nothing_reached(evidence.matched_step)


def _initial(evidence: Evidence) -> Iterator[Finding]:
    expected, actual = evidence.reference.initial(), [trace.initial() for trace in evidence.ranks]
    names = expected.layout.names
    if not names or any(each.layout.shapes != expected.layout.shapes for each in actual):
        return
    # parameters alone: buffers may start apart, for DDP sends rank 0's with the first forward
    known = {name for layout in evidence.reference.layouts for name in layout.names}
    places = [i for i, name in enumerate(names) if name in known]
    between_ranks = [names[i] for i in places if any(not _same(actual[0], each, i) for each in actual[1:])]
    differing = [names[i] for i in places if any(not _same(expected, each, i) for each in actual)]
    if between_ranks:
        yield finding(
            "ranks-start-apart", 0.99, f"before the first step ranks differ in {names_text(between_ranks)}"
        )
    elif differing and evidence.other_draw:
        yield finding(
            "other-seed",
            0.99,
            f"before the first step {names_text(differing)} of {len(places)} tensors are other than DataParallel's",
            "they are as large, and distributed as its are; all ranks agree with each other",
        )
    elif differing:
        yield finding(
            "initial-state",
            0.99,
            f"before the first step {names_text(differing)} of {len(places)} tensors are other than DataParallel's",
            "all ranks agree with each other",
        )


def _same(a: Vector, b: Vector, index: int) -> bool:
    if a.hashes[index] == b.hashes[index]:
        return True
    expected, actual = (each.sketched(each.layout)[index] for each in (a, b))
    return bool(np.abs(expected - actual).max() <= _ROUNDING * max(abs(expected[0]), 1e-300))


def _more_optimizers(evidence: Evidence, rank: int) -> bool:
    """Whether one side makes more optimizers, of the same parameters."""
    expected, actual = (
        {(line["optimizer"], trace.layouts[line["layout"]].shapes) for line in trace.lines}
        for trace in (evidence.reference, evidence.ranks[rank])
    )
    return len(expected) != len(actual) and {shapes for _, shapes in expected} == {
        shapes for _, shapes in actual
    }


def _layout(evidence: Evidence, matched_step: MatchedStep) -> Iterator[Finding]:
    others = {layout.shapes for layout in evidence.reference.layouts} - {matched_step.reference.layout.shapes}
    for rank, step in enumerate(matched_step.ranks):
        if step.optimizer != matched_step.reference.optimizer and _more_optimizers(evidence, rank):
            known = step.optimizer in {
                line["optimizer"] for line in evidence.ranks[rank].lines[: matched_step.number]
            }
            side = "under DataParallel" if known else f"on rank {rank}"
            yield finding(
                "optimizer-made-anew",
                0.99,
                f"in step {matched_step.number} an optimizer that is new {side} steps {names_text(step.layout.names)}",
            )
            return
        if step.optimizer != matched_step.reference.optimizer or step.layout.shapes in others:
            yield finding(
                "other-optimizer-order",
                0.99,
                f"in step {matched_step.number} the optimizer of {names_text(step.layout.names)} steps on rank "
                f"{rank}, "
                f"that of {names_text(matched_step.reference.layout.names)} under DataParallel",
            )
            return
        expected, actual = (_shapes(each.layout) for each in (matched_step.reference, step))
        if expected != actual and len(expected) == len(matched_step.reference.layout.names):
            yield _other_parameters(expected, actual, rank)
            return


def _shapes(layout: Layout) -> dict[str, tuple[int, ...]]:
    return dict(zip(map(plain_name, layout.names), layout.shapes, strict=True))


def _other_parameters(
    expected: dict[str, tuple[int, ...]], actual: dict[str, tuple[int, ...]], rank: int
) -> Finding:
    """Some of the other's, or another model's."""
    counts = f"the optimizer has {len(actual)} parameters on rank {rank}, {len(expected)} under DataParallel"
    only = [sorted(a.keys() - b.keys()) for a, b in ((actual, expected), (expected, actual))]
    texts = [
        f"only {side}: {names_text(names)}"
        for side, names in zip((f"on rank {rank}", "under DataParallel"), only, strict=True)
        if names
    ]
    differing = [name for name in expected if name in actual and expected[name] != actual[name]]
    texts += [
        f"{name} is {_size(actual[name])}, under DataParallel {_size(expected[name])}"
        for name in differing[:2]
    ]
    return finding(
        "other-model" if all(only) or differing else "other-parameters",
        0.991 if differing else 0.97,
        counts,
        *texts,
    )


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"


def _nothing_reached(matched_step: MatchedStep) -> Iterator[Finding]:
    empty = [rank for rank, step in enumerate(matched_step.ranks) if not step.gradients.hashes.any()]
    if empty and matched_step.reference.gradients.hashes.any():
        yield finding(
            "optimizer-of-others",
            0.985,
            f"no parameter of the optimizer has a gradient on {ranks_text(empty)}",
        )
