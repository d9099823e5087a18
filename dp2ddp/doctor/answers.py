"""What was asked of this machine, and what it answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

State = Literal["good", "remark", "bad"]  # bad: training cannot work here before it is mended

TWO_RANKS = "two ranks"  # the name of the answer that counts most


@dataclass(frozen=True)
class Answer:
    """One line of `dp2ddp doctor`."""

    name: str  # what was asked: "shared memory"
    state: State
    text: str  # the facts, in words
    advice: str = ""  # what follows from them, and what to do
    facts: Mapping[str, object] = field(default_factory=dict)  # the same facts as data; sizes in bytes


def answered(
    name: str, text: str, facts: Mapping[str, object], advice: str = "", state: State | None = None
) -> Answer:
    """Where there is advice it is a remark, unless it is said to be something else."""
    return Answer(name, state or ("remark" if advice else "good"), text, advice, facts)


def size(count: float) -> str:
    """Bytes in words: 64 MB, 1.5 GB."""
    for unit, factor in (("TB", 2**40), ("GB", 2**30), ("MB", 2**20)):
        if count >= factor:
            number = count / factor
            return f"{number:.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}".replace(".0 ", " ")
    return f"{count / 1024:.0f} KB"
