"""Which causes explain what was found, the likeliest first; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dp2ddp.comparison.aligned import Aligned
from dp2ddp.comparison.causes import (
    batch_signatures,
    gradient_signatures,
    model_signatures,
    outside_signatures,
    start_signatures,
    step_signatures,
)
from dp2ddp.comparison.causes.catalogue import OTHER_RANDOM_NUMBERS, Cause, Finding, catalogue, finding
from dp2ddp.comparison.causes.evidence import Evidence
from dp2ddp.comparison.differences import AT_END

Family = Callable[[Evidence], Iterator[Finding]]

# from cause to effect, as in the catalogue
FAMILIES: tuple[Family, ...] = (
    start_signatures.signatures,
    batch_signatures.signatures,
    model_signatures.signatures,
    gradient_signatures.signatures,
    step_signatures.signatures,
    outside_signatures.signatures,
)


def diagnose(evidence: Evidence) -> tuple[Cause, ...]:
    """Causes by how well their signatures fit; of those that fit alike, what comes first makes the others."""
    if evidence.unsteady:
        return (_cause(finding("dataparallel-unsteady", 1.0, evidence.unsteady), evidence),)
    best: dict[str, Finding] = {}
    for family in FAMILIES:
        for each in family(evidence):
            if each.code not in best or each.weight > best[each.code].weight:
                best[each.code] = each
    trained = evidence.comparison.same
    ranked = sorted(
        best.values(), key=lambda finding: (not trained and _is_outside(finding.code), -finding.weight)
    )
    return tuple(_cause(finding, evidence) for finding in _worth_telling(ranked))


_SURE, _GUESS = 0.9, 0.6  # where a signature fits as well as that, what fits as badly as this is noise


def _worth_telling(ranked: Sequence[Finding]) -> Iterator[Finding]:
    """Without what one that fits better brings about, and without guesses beside a cause that is sure."""
    effects: set[str] = set()
    for each in ranked:
        guess = ranked[0].weight >= _SURE and each.weight < _GUESS
        if not guess and each.code not in effects:
            yield each
            effects.update(catalogue()[each.code].brings)


def _is_outside(code: str) -> bool:
    """Whether the cause lies outside of training, in what is printed or written, and says where."""
    return catalogue()[code].family == "outside" and code != "other-output"


def with_aligned(causes: tuple[Cause, ...], aligned: Aligned) -> tuple[Cause, ...]:
    """With what is wrong beside the random numbers.

    What makes another training comes before other random numbers where the aligned runs are sure of it, and right
    behind them where they are not: that these are all is disproven. What is written or printed otherwise comes last.
    """
    first = aligned.comparison.first
    if first is None:
        seen = "seen with DataParallel's random numbers, with which training is the same"
        sure = [cause for cause in aligned.causes if _is_outside(cause.code)]
    else:
        at_end = first.kind in AT_END
        what = "what models hold at the end" if at_end else f"step {first.step} is the first that"
        seen = f"seen with DataParallel's random numbers, where {what} differs"
        sure = [cause for cause in aligned.causes[:1] if cause.weight >= _SURE]
        if not sure and aligned.causes and causes and causes[0].code in OTHER_RANDOM_NUMBERS:
            (guess,) = aligned.causes[:1]
            others = [cause for cause in causes[1:] if cause.code != guess.code]
            return (causes[0], replace(guess, evidence=(seen, *guess.evidence)), *others)
    if not sure or (causes and causes[0].weight >= _SURE and causes[0].code not in OTHER_RANDOM_NUMBERS):
        return causes
    known = {cause.code for cause in sure}
    with_seen = [replace(cause, evidence=(*cause.evidence, seen)) for cause in sure]
    others = [cause for cause in causes if cause.code not in known]
    training = [cause for cause in others[:1] if first is None and cause.weight >= _GUESS]
    front = [cause for cause in training if not _is_outside(cause.code)]
    return (*front, *with_seen, *others[len(front) :])


def _cause(finding: Finding, evidence: Evidence) -> Cause:
    entry = catalogue()[finding.code]
    world = str(evidence.world)
    return Cause(
        code=finding.code,
        title=entry.title.replace("{W}", world),
        evidence=finding.evidence,
        advice=entry.advice.replace("{W}", world),
        weight=finding.weight,
        edits=tuple(f"{rule} {place}" for rule in entry.rules for place in evidence.edits.get(rule, ())),
    )
