"""Seconds and bytes as people read them, and what the two modes are called."""

from __future__ import annotations

NAMES = {"dp": "DataParallel", "ddp": "DDP"}
_UNITS = ("B", "KB", "MB", "GB", "TB")


def duration(seconds: float) -> str:
    """Three digits: 812 us, 12.3 ms, 1.25 s."""
    if not seconds:
        return "0 s"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 0.9995 or unit == "us":
            return f"{_three(seconds * factor)} {unit}"
    raise AssertionError


def size(count: float) -> str:
    """Three digits, in powers of 1000: 812 B, 12.3 KB."""
    for unit in _UNITS:
        if count < 999.5 or unit == _UNITS[-1]:
            return f"{_three(count)} {unit}"
        count /= 1000
    raise AssertionError


def _three(number: float) -> str:
    return f"{number:.0f}" if number >= 99.95 or number == int(number) else f"{number:.3g}"
