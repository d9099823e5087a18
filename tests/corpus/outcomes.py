"""What becomes of a script of the corpus: the answer of `convert`, and the strategy it chooses."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from corpus.cases import Case

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.codemod.convert import convert
from dp2ddp.source.projects import read_project


@dataclass(frozen=True)
class Outcome:
    """What `convert` says of a script, without its text."""

    hazards: tuple[str, ...]  # why it is not converted
    answer: str  # the exit code, and what is said about which line
    codes: tuple[str, ...]
    strategy: tuple[str, str, str] | None  # data, join, gradients
    changed: bool

    @property
    def words(self) -> str:
        """The strategy chosen; for a script that is not converted, in words what it is answered."""
        if not self.hazards and self.changed and self.strategy:
            return " ".join(self.strategy)
        return f"{'hazard' if self.hazards else 'untouched'} {' '.join(self.codes)}".strip()


@functools.cache  # the claims about the corpus share its conversions (shared_runs.py)
def outcome(case: Case) -> Outcome:
    conversion = convert(read_project(case.path, as_module=case.module is not None))
    chosen = conversion.strategy
    return Outcome(
        hazards=tuple(one.because for one in conversion.hazards),
        answer=answer(conversion),
        codes=tuple(dict.fromkeys(one.code for one in (*conversion.hazards, *conversion.notes))),
        strategy=chosen and (chosen.data.value, chosen.join.value, chosen.gradients.value),
        changed=bool(conversion.changed),
    )


def answer(conversion: Conversion) -> str:
    """The exit code of `convert`, and what it says about which line."""
    said = [f"{one.code}:{one.line}" for one in (*conversion.hazards, *conversion.notes)]
    return " ".join([str(int(bool(conversion.hazards))), *said])
