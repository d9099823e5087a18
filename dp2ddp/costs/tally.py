"""What is counted, and how much of it a step has."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Sequence

from dp2ddp.costs.readings import Sent


class Tally:
    """Calls and bytes of each kind, so far."""

    def __init__(self) -> None:
        self.calls: Counts[str] = Counts()
        self.bytes: Counts[str] = Counts()

    def add(self, kind: str, size: int = 0) -> None:
        """Count one call of a kind, with its bytes."""
        self.calls[kind] += 1
        self.bytes[kind] += size

    def taken(self) -> Tally:
        """What was counted, and begin anew."""
        tally = Tally()
        tally.calls, tally.bytes = self.calls, self.bytes
        self.calls, self.bytes = Counts(), Counts()
        return tally


def mean(tallies: Sequence[Tally]) -> dict[str, Sent]:
    """The mean of several steps: kind -> calls and bytes a step."""
    kinds = sorted({kind for tally in tallies for kind in tally.calls})
    count = len(tallies)
    return {
        kind: Sent(
            sum(tally.calls[kind] for tally in tallies) / count,
            sum(tally.bytes[kind] for tally in tallies) / count,
        )
        for kind in kinds
    }
