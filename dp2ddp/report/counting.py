"""Numbers and names in a sentence."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str, nouns: str = "") -> str:
    """`1 copy`, `2 copies`."""
    return f"{number} {noun}" if number == 1 else f"{number} {nouns or noun + 's'}"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`; "" for none."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
