"""What becomes of a script of the corpus: the answer of `convert`, and the strategy it chooses."""

from __future__ import annotations

from corpus.cases import Case

from dp2ddp.codemod.convert import Conversion, convert
from dp2ddp.source.projects import read_project


def answer(conversion: Conversion) -> str:
    """The exit code of `convert`, and what it says about which line."""
    said = [f"{one.code}:{one.line}" for one in (*conversion.hazards, *conversion.notes)]
    return " ".join([str(int(bool(conversion.hazards))), *said])


def outcome(case: Case) -> str:
    """The strategy chosen; for a script that is not converted, in words what it is answered."""
    conversion = convert(read_project(case.path, as_module=case.module is not None))
    if not conversion.hazards and conversion.changed and conversion.strategy:
        chosen = conversion.strategy
        return f"{chosen.data.value} {chosen.join.value} {chosen.gradients.value}"
    codes = dict.fromkeys(one.code for one in (*conversion.hazards, *conversion.notes))
    return f"{'hazard' if conversion.hazards else 'untouched'} {' '.join(codes)}".strip()
