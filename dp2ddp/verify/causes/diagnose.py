"""Which causes explain what was found, the likeliest first; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dp2ddp.verify.aligned import Aligned
from dp2ddp.verify.causes import (
    batches,
    data_parallel,
    ending,
    gradients,
    models,
    outside,
    start,
    steps,
    synchronisation,
)
from dp2ddp.verify.causes.catalogue import CATALOGUE, OUTSIDE
from dp2ddp.verify.causes.cause import Cause, Found
from dp2ddp.verify.causes.evidence import Evidence

Family = Callable[[Evidence], Iterator[Found]]

# from cause to effect, as in the catalogue
FAMILIES: tuple[Family, ...] = (
    data_parallel.signatures,
    start.signatures,
    batches.signatures,
    models.signatures,
    synchronisation.signatures,
    gradients.signatures,
    steps.signatures,
    ending.signatures,
    outside.signatures,
)


def diagnose(evidence: Evidence) -> tuple[Cause, ...]:
    """Causes by how well their signatures fit; of those that fit alike, what comes first makes the others."""
    best: dict[str, Found] = {}
    for family in FAMILIES:
        for one in family(evidence):
            if one.code not in best or one.weight > best[one.code].weight:
                best[one.code] = one
    trained = evidence.comparison.same
    ranked = sorted(best.values(), key=lambda one: (not trained and one.code in _OUTSIDE, -one.weight))
    return tuple(_cause(one, evidence) for one in _worth_telling(ranked))


_SURE, _GUESS = 0.9, 0.6  # where a signature fits as well as that, what fits as badly as this is noise


def _worth_telling(ranked: Sequence[Found]) -> Iterator[Found]:
    """Without what one that fits better brings about, and without guesses beside a cause that is sure."""
    effects: set[str] = set()
    for one in ranked:
        guess = ranked[0].weight >= _SURE and one.weight < _GUESS
        if not guess and one.code not in effects:
            yield one
            effects.update(CATALOGUE[one.code].brings)


_RANDOM = {"other-seed", "other-order", "other-inputs", "other-random-numbers"}  # what aligned runs take away
_OUTSIDE = {entry.code for entry in OUTSIDE} - {"other-output"}


def with_aligned(causes: tuple[Cause, ...], aligned: Aligned) -> tuple[Cause, ...]:
    """With what is wrong beside the random numbers in front, where the aligned runs are sure of it."""
    first = aligned.comparison.first
    if first is None:
        seen = "seen with DataParallel's random numbers, with which training is the same"
        sure = [one for one in aligned.causes if one.code in _OUTSIDE]
    else:
        seen = f"seen with DataParallel's random numbers, where step {first.step} is the first that differs"
        sure = [one for one in aligned.causes[:1] if one.weight >= _SURE]
    if not sure or (causes and causes[0].weight >= _SURE and causes[0].code not in _RANDOM):
        return causes
    known = {one.code for one in sure}
    behind = tuple(replace(one, evidence=(*one.evidence, seen)) for one in sure)
    return (*behind, *(one for one in causes if one.code not in known))


def _cause(one: Found, evidence: Evidence) -> Cause:
    entry = CATALOGUE[one.code]
    world = str(evidence.world)
    return Cause(
        code=one.code,
        title=entry.title.replace("{W}", world),
        evidence=one.evidence,
        advice=entry.advice.replace("{W}", world),
        weight=one.weight,
        edits=tuple(f"{rule} {place}" for rule in entry.rules for place in evidence.edits.get(rule, ())),
    )
