"""What no optimizer step shows: weights moved by hand, averages, what is done behind the last step."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.trace.records import Final
from dp2ddp.verify.causes.cause import Found, found
from dp2ddp.verify.causes.evidence import Evidence
from dp2ddp.verify.causes.models import of_batchnorm
from dp2ddp.verify.causes.words import names_text, number_text
from dp2ddp.verify.differences import AT_END
from dp2ddp.verify.ending import Apart, tensors_apart

_CODES = dict(
    zip(AT_END, ("moved-by-hand", "changed-after-training", "buffers-of-another-rank"), strict=True)
)


def signatures(evidence: Evidence) -> Iterator[Found]:
    first = evidence.comparison.first
    if first is None or first.kind not in AT_END:
        return
    norms = number_text(first.norm), number_text(first.reference_norm)
    told = "{} at the end: norm {}, under DataParallel {}".format(first.name, *norms)
    if not evidence.comparison.steps and (names := _apart_on_ranks(evidence)):
        words = f"no optimizer; weights differ from rank to rank at the end: {names_text(names)}"
        yield found("not-synchronised", 0.9, words, told)
    own_buffer = first.kind == "final buffer" and not of_batchnorm(first.name)
    yield found("buffer-of-local-rows" if own_buffer else _CODES[first.kind], 0.85, told)


def _apart_on_ranks(evidence: Evidence) -> list[str]:
    """Parameters that are trained and do not have the same bits on all ranks."""
    finals = [rank.final for rank in evidence.ranks]
    return list(dict.fromkeys(each.name for other in finals[1:] for each in _of_two(finals[0], other)))


def _of_two(one: Final | None, other: Final | None) -> list[Apart]:
    return [each for each in tensors_apart(one, other) if each.size and each.kind == "unstepped parameter"]
