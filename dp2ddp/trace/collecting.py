"""What happens between two optimizer steps, collected as it comes, from any thread."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from dp2ddp.trace.records import Draw, Forward


class Collected:
    """The fields of `Events`, being filled; `take` gives them away and begins anew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._lists: dict[str, list[Any]] = {
            "losses": [],
            "forwards": [],
            "draws": [],
            "clips": [],
            "limits": [],
        }
        self._counts: Counter[str] = Counter()
        self._precision: dict[str, None] = {}
        self._casts: dict[str, str] = {}
        self._collectives: Counter[str] = Counter()

    def loss(self, value: float) -> None:
        self._append("losses", value)

    def forward(self, forward: Forward) -> None:
        self._append("forwards", forward)

    def draw(self, draw: Draw) -> None:
        self._append("draws", draw)

    def clip(self, norm: float) -> None:
        self._append("clips", norm)

    def limit(self, limit: float) -> None:
        self._append("limits", limit)

    def skipped(self) -> None:
        self._count("skipped")

    def scheduled(self) -> None:
        self._count("scheduled")

    def precision(self, dtype: str) -> None:
        with self._lock:
            self._precision[dtype] = None

    def cast(self, what: str, place: str) -> None:
        with self._lock:
            self._casts.setdefault(what, place)

    def collective(self, name: str) -> None:
        with self._lock:
            self._collectives[name] += 1

    def take(self) -> dict[str, Any]:
        """Keyword arguments of `Events`."""
        with self._lock:
            collected = self._collected()
            self._begin()
        return collected

    def peek(self) -> dict[str, Any]:
        """The same, and nothing begins anew."""
        with self._lock:
            return self._collected()

    def _collected(self) -> dict[str, Any]:
        return {
            **{name: tuple(values) for name, values in self._lists.items()},
            **{name: self._counts[name] for name in ("skipped", "scheduled")},
            "precision": tuple(self._precision),
            "casts": tuple(self._casts.items()),
            "collectives": tuple(sorted(self._collectives.items())),
        }

    def _append(self, name: str, value: Any) -> None:
        with self._lock:
            self._lists[name].append(value)

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1
