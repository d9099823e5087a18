"""What becomes of a script of the corpus: the answer of `convert`, and the helpers that it takes."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from corpus.cases import Case

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.codemod.convert import convert

# What tells conversions apart: what runs on ranks, and who loads. The others are wherever a file is written.
DISTINCTIVE = (
    "WholeBatchDDP", "WholeBatchParallel", "WholeBatchSharingErrors", "WholeBatchInParts", "WholeBatch",
    "WholeBatchPrinting", "WholeBatchWriting", "WholeBatchInTurns", "DataParallelOnRanks",
    "DataParallelInTurns", "data_parallel_on_ranks", "parallel_apply_on_ranks", "parallel_apply_in_turns",
    "Rank0Loader", "Rank0SamplerLoader", "hold_on_rank0",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What `convert` says of a script, without its text."""

    hazards: tuple[str, ...]  # why it is not converted
    answer: str  # the exit code, and what is said about which line
    codes: tuple[str, ...]
    helpers: tuple[str, ...]  # the distinctive ones
    changed: bool

    @property
    def words(self) -> str:
        """The helpers; for a script that is not converted, in words what it is answered."""
        if not self.hazards and self.changed:
            return " ".join(self.helpers)
        return f"{'hazard' if self.hazards else 'untouched'} {' '.join(self.codes)}".strip()


@functools.cache  # the claims about the corpus share its conversions (shared_runs.py)
def outcome(case: Case) -> Outcome:
    conversion = convert(case.project())
    needed = {name for plan in conversion.plans for name in plan.helpers}
    return Outcome(
        hazards=tuple(one.because for one in conversion.hazards),
        answer=answer(conversion),
        codes=tuple(dict.fromkeys(one.code for one in (*conversion.hazards, *conversion.notes))),
        helpers=tuple(name for name in DISTINCTIVE if name in needed),
        changed=bool(conversion.changed),
    )


def answer(conversion: Conversion) -> str:
    """The exit code of `convert`, and what it says about which line."""
    said = [f"{one.code}:{one.line}" for one in (*conversion.hazards, *conversion.notes)]
    return " ".join([str(int(bool(conversion.hazards))), *said])
