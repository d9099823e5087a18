"""DataParallel's own faults, named as such and not blamed on the port (docs/semantics.md)."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.verify.causes.batches import batches_of
from dp2ddp.verify.causes.catalogue import CATALOGUE
from dp2ddp.verify.causes.cause import Entry, Found, found
from dp2ddp.verify.causes.evidence import Evidence
from dp2ddp.verify.causes.words import sum_text

# what the original's last words say: torch's own messages
_LAST_WORDS = {
    "Expected more than 1 value per channel when training": "dataparallel-one-row",
    "forward() missing 1 required positional argument": "dataparallel-keywords",
}


def signatures(evidence: Evidence) -> Iterator[Found]:
    yield from _precision_in_threads(evidence)
    yield from _dropped_rows(evidence)


def _precision_in_threads(evidence: Evidence) -> Iterator[Found]:
    """The dtype of autocast is a thread's own: replicas ask for float16 where the script asked for bfloat16."""
    step = 0 if evidence.comparison.first is None else evidence.comparison.first.step
    ours, theirs = (
        {dtype for line in trace.lines if line["step"] == step for dtype in line["precision"]}
        for trace in (evidence.reference, evidence.ranks[0])
    )
    if "bfloat16" in theirs and ours == {*theirs, "float16"}:
        asked = ", ".join(sorted(theirs))
        told = f"asked of autocast in step {step}: {asked} on rank 0, under DataParallel float16 as well"
        yield found("dataparallel-autocast", 0.985, told)


def _dropped_rows(evidence: Evidence) -> Iterator[Found]:
    """Rows that the loader gave and no replica got, while the ranks have them all."""
    scene = evidence.scene
    if scene is None:
        return
    last = {
        draw.loader for draw in scene.reference.draws[-1:]
    }  # evaluation comes before the step's own batch
    given = sum(len(draw.indices or ()) for draw in scene.reference.draws if draw.loader in last)
    for batch in batches_of(scene)[:1]:
        lost = batch.theirs - batch.ours
        if lost and not batch.ours - batch.theirs and len(batch.reference) < given == batch.theirs.total():
            rows = next(forward.rows for forward in scene.reference.forwards if forward.rows)
            yield found(
                "dataparallel-drops-rows",
                0.985,
                f"the loader gave {given} rows in step {scene.number}, DataParallel's replicas got "
                f"{sum_text(rows)}",
            )


def fault_of_original(error: str) -> Entry | None:
    """The known fault of DataParallel by which an original ended."""
    code = next((code for words, code in _LAST_WORDS.items() if words in error), None)
    return CATALOGUE[code] if code else None
