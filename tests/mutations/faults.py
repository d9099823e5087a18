"""Planted faults: what a port by hand gets wrong. tests/mutations/faults.diff has each as a change of a right port.

Its comment says the first optimizer step that the fault touches (counted over all optimizers; `outside`: training is
the same, and what the outside sees is not), the cause that diagnosis has to put first (where two are as right, both),
and where the fault is from, if not from a port that somebody wrote: headings of docs/semantics.md, and issues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.diffs import cases
from tests.mutations.suite import Change

SAID = re.compile(r"# (?:step (\d+)|outside): (\S+)(?: \(.*\))?\n(?:# missed: (\S+)\n)?")


@dataclass(frozen=True)
class Fault:
    """A wrong port."""

    change: Change
    causes: str  # codes, divided by "|"
    step: int | None
    missed: str  # what diagnosis puts first instead

    @property
    def name(self) -> str:
        return self.change.name

    @property
    def base(self) -> str:
        return self.change.base


def _faults() -> Iterator[Fault]:
    for case in cases(Path(__file__).with_suffix(".diff")):
        said = SAID.fullmatch(case.head)
        assert said, f"{case.name}: {case.head}"
        step, causes, missed = said.groups()
        yield Fault(Change.of(case), causes, None if step is None else int(step), missed or "")


FAULTS = tuple(_faults())
