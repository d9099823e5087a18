"""Before the first step: DataParallel's own faults (docs/semantics.md), weights, and what the optimizer was given."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2ddp.comparison.causes.catalogue import CatalogueEntry, Finding, catalogue, finding
from dp2ddp.comparison.causes.evidence import Evidence, MatchedStep
from dp2ddp.comparison.matching import plain_name
from dp2ddp.trace.records import Layout, Vector
from dp2ddp.words import names_text, ranks_text

_ROUNDING = 1e-12  # the same numbers, got in another way
# what the original's last words say: torch's own messages
_LAST_WORDS = {
    "Expected more than 1 value per channel when training": "dataparallel-one-row",
    "forward() missing 1 required positional argument": "dataparallel-keywords",
}


def fault_of_original(error: str) -> CatalogueEntry | None:
    """The known fault of DataParallel by which an original ended."""
    code = next((code for words, code in _LAST_WORDS.items() if words in error), None)
    return catalogue()[code] if code else None


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """The findings of this family that fit the evidence."""
    yield from _precision_in_threads(evidence)
    if evidence.comparison.first is None:
        return
    if evidence.by_hashes:
        text = "the same ranks train the same, in float32, with one PYTHONHASHSEED"
        yield finding("order-of-sets", 0.995, text)
    yield from _initial(evidence)
    if evidence.is_at_step:
        yield from _layout(evidence, evidence.here)
        here = evidence.here
        empty = [rank for rank, step in enumerate(here.ranks) if not step.gradients.hashes.any()]
        if empty and here.reference.gradients.hashes.any():
            text = f"no parameter of the optimizer has a gradient on {ranks_text(empty)}"
            yield finding("optimizer-of-others", 0.985, text)


def _precision_in_threads(evidence: Evidence) -> Iterator[Finding]:
    """The dtype of autocast is a thread's own: replicas ask for float16 where the script asked for bfloat16."""
    step = 0 if evidence.comparison.first is None else evidence.comparison.first.step
    expected, actual = (
        {dtype for line in trace.lines if line["step"] == step for dtype in line["precision"]}
        for trace in (evidence.reference, evidence.ranks[0])
    )
    if "bfloat16" in actual and expected == {*actual, "float16"}:
        dtypes = ", ".join(sorted(actual))
        text = f"asked of autocast in step {step}: {dtypes} on rank 0, under DataParallel float16 as well"
        yield finding("dataparallel-autocast", 0.985, text)


def _initial(evidence: Evidence) -> Iterator[Finding]:
    """Parameters alone: buffers may start apart, for DDP sends rank 0's with the first forward."""
    count, between_ranks, differing = 0, list[str](), list[str]()
    for start in evidence.starts:
        expected, actual = start.expected, [own for _, own in start.ranks]
        if any(each.layout.shapes != expected.layout.shapes for each in actual):
            return
        for place, name in enumerate(expected.layout.names):
            if name in start.own:
                count += 1
                differing += [name] * any(not _same(expected, each, place) for each in actual)
                between_ranks += [name] * any(not _same(actual[0], each, place) for each in actual[1:])
    if between_ranks:
        text = f"before the first step ranks differ in {names_text(between_ranks)}"
        yield finding("ranks-start-apart", 0.99, text)
    elif differing:
        which = f"{names_text(differing)} of {count} tensors"
        text = f"before the first step {which} are other than DataParallel's"
        alike = "they are as large, and distributed as its are; " * evidence.other_draw
        code = "other-seed" if evidence.other_draw else "initial-state"
        yield finding(code, 0.99, text, f"{alike}all ranks agree with each other")


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


def _layout(evidence: Evidence, here: MatchedStep) -> Iterator[Finding]:
    expected = here.reference
    others = {layout.shapes for layout in evidence.reference.layouts} - {expected.layout.shapes}
    for rank, step in enumerate(here.ranks):
        if step.optimizer != expected.optimizer and _more_optimizers(evidence, rank):
            before = evidence.ranks[rank].lines[: here.number]
            known = step.optimizer in {line["optimizer"] for line in before}
            side = "under DataParallel" if known else f"on rank {rank}"
            text = (
                f"in step {here.number} an optimizer that is new {side} steps {names_text(step.layout.names)}"
            )
            yield finding("optimizer-made-anew", 0.99, text)
            return
        if step.optimizer != expected.optimizer or step.layout.shapes in others:
            own, whole = names_text(step.layout.names), names_text(expected.layout.names)
            text = f"the optimizer of {own} steps on rank {rank}, that of {whole} under DataParallel"
            yield finding("other-optimizer-order", 0.99, f"in step {here.number} {text}")
            return
        shapes = _shapes(expected.layout), _shapes(step.layout)
        if shapes[0] != shapes[1] and len(shapes[0]) == len(expected.layout.names):
            yield _other_parameters(*shapes, rank)
            return


def _shapes(layout: Layout) -> dict[str, tuple[int, ...]]:
    return dict(zip(map(plain_name, layout.names), layout.shapes, strict=True))


def _other_parameters(
    expected: dict[str, tuple[int, ...]], actual: dict[str, tuple[int, ...]], rank: int
) -> Finding:
    """Some of the other's, or another model's."""
    counts = f"the optimizer has {len(actual)} parameters on rank {rank}, {len(expected)} under DataParallel"
    only = [sorted(a.keys() - b.keys()) for a, b in ((actual, expected), (expected, actual))]
    sides = zip((f"on rank {rank}", "under DataParallel"), only, strict=True)
    texts = [f"only {side}: {names_text(names)}" for side, names in sides if names]
    differing = [name for name in expected if name in actual and expected[name] != actual[name]]
    texts += [
        f"{name} is {_size(actual[name])}, under DataParallel {_size(expected[name])}"
        for name in differing[:2]
    ]
    code = "other-model" if all(only) or differing else "other-parameters"
    return finding(code, 0.991 if differing else 0.97, counts, *texts)


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"
