"""Figures as short texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MOST = 4


def names_text(names: Sequence[object]) -> str:
    """`conv1.weight, conv1.bias and 3 more`."""
    shown = ", ".join(str(name) for name in names[:_MOST])
    return f"{shown} and {len(names) - _MOST} more" if len(names) > _MOST else shown


def ranks_text(ranks: Sequence[int]) -> str:
    """`rank 1`, or `ranks 1, 2`."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def sum_text(numbers: Iterable[int]) -> str:
    """`4 + 4`."""
    return " + ".join(str(number) for number in numbers)


def number_text(number: float) -> str:
    """A number with six significant digits."""
    return f"{number:.6g}"


def numbers_text(numbers: Iterable[float]) -> str:
    """Numbers with six significant digits each, with commas between them; "none" where there are none."""
    return ", ".join(number_text(number) for number in numbers) or "none"
