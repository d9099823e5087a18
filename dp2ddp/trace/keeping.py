"""For which steps all values are kept: at the start, where faults show first, then ever more seldom.

Of all other steps there are hashes and sketches. So a record is bounded, whatever the number of steps.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from typing import Any

FULL_BYTES = 256 * 2**20
HEAD = 100  # steps
_PER_DOUBLING = 8  # steps with values for each doubling of the number of steps, behind the head


class Keeper:
    """Says which steps are kept whole, and counts what they take."""

    def __init__(self, budget: int) -> None:
        # a quarter is for the landmarks behind the head, of which large models could not have any otherwise
        self._left = {"head": budget - budget // 4, "landmarks": budget // 4}

    def keeps(self, step: int, size: int) -> bool:
        """Whether the step's tensors, of that many bytes, are kept whole; then they count."""
        part = "head" if step < HEAD else "landmarks"
        if part == "landmarks" and not _is_landmark(step):
            return False
        if size > self._left[part]:
            return False
        self._left[part] -= size
        return True


def _is_landmark(step: int) -> bool:
    return bool(step % max(1, (1 << step.bit_length() - 1) // _PER_DOUBLING) == 0)


class Collected:
    """The fields of `Events`, being filled; `take` gives them away and begins anew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: defaultdict[str, list[Any]] = defaultdict(list)

    def add(self, name: str, value: Any = None) -> None:
        """Something happened: one more of what the field of this name holds or counts."""
        with self._lock:
            self._values[name].append(value)

    def take(self) -> dict[str, Any]:
        """Keyword arguments of `Events`."""
        with self._lock:
            collected = self._collected()
            self._values.clear()
        return collected

    def peek(self) -> dict[str, Any]:
        """The same, and nothing begins anew."""
        with self._lock:
            return self._collected()

    def _collected(self) -> dict[str, Any]:
        values = self._values
        first_places: dict[str, str] = {}
        for what, place in values["casts"]:
            first_places.setdefault(what, place)
        return {
            **{name: tuple(values[name]) for name in ("losses", "forwards", "draws", "clips", "limits")},
            **{name: len(values[name]) for name in ("skipped", "scheduled")},
            "precision": tuple(dict.fromkeys(values["precision"])),
            "casts": tuple(first_places.items()),
            "collectives": tuple(sorted(Counter(values["collectives"]).items())),
        }
