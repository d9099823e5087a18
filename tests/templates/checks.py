"""What the templates must do on ranks besides training: each returns facts, the same on every rank or named by rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CHECKS: dict[str, Callable[[], Any]] = {}
