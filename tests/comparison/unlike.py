"""What differs in two files, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dp2ddp.comparison import checkpoints


def difference(a: Path, b: Path, allowed: float, **options: Any) -> str:
    """As verify tells it; "" for nothing."""
    found = checkpoints.difference(a, b, allowed, **options)
    return found.what if found else ""
