"""What no optimizer step shows: weights moved by hand, averages, what is done behind the last step."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.comparison.causes.cause import Finding, finding
from dp2ddp.comparison.causes.evidence import Evidence
from dp2ddp.comparison.differences import AT_END
from dp2ddp.comparison.ending import is_batchnorms
from dp2ddp.words import names_text

_CODES = dict(
    zip(AT_END, ("moved-by-hand", "changed-after-training", "buffers-of-another-rank"), strict=True)
)


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """The findings of this family that fit the evidence."""
    first = evidence.comparison.first
    if first is None or first.kind not in AT_END:
        return
    norms = [f"{norm:.6g}" for norm in (first.norm, first.reference_norm)]
    if evidence.comparison.steps and first.rank:  # compared with rank 0, which is right
        where = f"on rank {first.rank} at the end: norm {norms[0]}, on rank 0 {norms[1]}"
        yield finding("ranks-part", 0.85, f"{first.name} {where}")
        return
    text = "{} at the end: norm {}, under DataParallel {}".format(first.name, *norms)
    if not evidence.comparison.steps and (names := evidence.apart_at_end("unstepped parameter")):
        words = f"no optimizer; weights differ from rank to rank at the end: {names_text(names)}"
        yield finding("not-synchronised", 0.9, words, text)
    own_buffer = first.kind == "final buffer" and not is_batchnorms(first.name)
    yield finding("buffer-of-local-rows" if own_buffer else _CODES[first.kind], 0.85, text)
