"""What became of a fault or a harmless variant: the line of the table, and whether it is as it should be."""

from __future__ import annotations

from dataclasses import dataclass

from dp2ddp.comparison.verdict import Verdict
from tests.mutations.faults import Fault


@dataclass(frozen=True)
class Result:
    """A fault, found or not."""

    fault: Fault
    verdict: Verdict | str  # the words of a failure

    @property
    def step(self) -> int | None:
        """The first step that was found different; None: only the outside, or nothing."""
        first = None if isinstance(self.verdict, str) else self.verdict.float64.first
        return None if first is None else first.step

    @property
    def is_detected(self) -> bool:
        """At the step that the fault first touches."""
        return not isinstance(self.verdict, str) and not self.verdict.same and self.step == self.fault.step

    @property
    def code(self) -> str:
        causes = () if isinstance(self.verdict, str) else self.verdict.causes
        return causes[0].code if causes else "none"

    @property
    def is_right(self) -> bool:
        return self.code in self.fault.causes.split("|")

    @property
    def line(self) -> str:
        where = self.verdict if isinstance(self.verdict, str) else f"step {self.step}"
        if self.step is None and self.is_detected:
            where = "outside"
        mark = ("" if self.is_detected else " NOT FOUND THERE") + (
            "" if self.is_right else f" wanted {self.fault.causes}"
        )
        return f"{self.fault.base:<12}{self.fault.name:<40}{where:<9} {self.code}{mark}"


def alarm(verdict: Verdict | str) -> object:
    """What is said to be different of a variant that is not; nothing if it is the same."""
    if isinstance(verdict, str):
        return verdict
    return None if verdict.same else (verdict.float64.first, verdict.stdout.first, verdict.files.different)
