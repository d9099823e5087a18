"""DataParallel's own faults, named as such and not blamed on the port (docs/semantics.md)."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.comparison.causes.catalogue import CatalogueEntry, catalogue
from dp2ddp.comparison.causes.cause import Finding, finding
from dp2ddp.comparison.causes.evidence import Evidence

# what the original's last words say: torch's own messages
_LAST_WORDS = {
    "Expected more than 1 value per channel when training": "dataparallel-one-row",
    "forward() missing 1 required positional argument": "dataparallel-keywords",
}


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """The findings of this family that fit the evidence."""
    # the dtype of autocast is a thread's own: replicas ask for float16 where the script asked for bfloat16
    step = 0 if evidence.comparison.first is None else evidence.comparison.first.step
    expected, actual = (
        {dtype for line in trace.lines if line["step"] == step for dtype in line["precision"]}
        for trace in (evidence.reference, evidence.ranks[0])
    )
    if "bfloat16" in actual and expected == {*actual, "float16"}:
        dtypes = ", ".join(sorted(actual))
        text = f"asked of autocast in step {step}: {dtypes} on rank 0, under DataParallel float16 as well"
        yield finding("dataparallel-autocast", 0.985, text)


def fault_of_original(error: str) -> CatalogueEntry | None:
    """The known fault of DataParallel by which an original ended."""
    code = next((code for words, code in _LAST_WORDS.items() if words in error), None)
    return catalogue()[code] if code else None
