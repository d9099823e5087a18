"""What is counted, and how much of it a step has."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Sequence

from dp2ddp.bench.readings import Sent


class Tally:
    """Calls and bytes of each kind, so far."""

    def __init__(self) -> None:
        self.calls: Counts[str] = Counts()
        self.bytes: Counts[str] = Counts()

    def add(self, kind: str, size: int = 0) -> None:
        self.calls[kind] += 1
        self.bytes[kind] += size

    def taken(self) -> Tally:
        """What was counted, and begin anew."""
        found = Tally()
        found.calls, found.bytes = self.calls, self.bytes
        self.calls, self.bytes = Counts(), Counts()
        return found


def mean(tallies: Sequence[Tally]) -> dict[str, Sent]:
    """Of steps."""
    kinds = sorted({kind for tally in tallies for kind in tally.calls})
    count = len(tallies)
    return {
        kind: Sent(
            sum(tally.calls[kind] for tally in tallies) / count,
            sum(tally.bytes[kind] for tally in tallies) / count,
        )
        for kind in kinds
    }
