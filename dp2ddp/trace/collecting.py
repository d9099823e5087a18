"""What happens between two optimizer steps, collected as it comes, from any thread."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from typing import Any


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
