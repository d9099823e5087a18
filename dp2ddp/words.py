"""Numbers and names as short texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MOST = 4  # names


def counted(number: int, noun: str, nouns: str = "") -> str:
    """`1 copy`, `1,200 copies`."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {nouns or noun + 's'}"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`; "" for none."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


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


def numbers_text(numbers: Iterable[float]) -> str:
    """Numbers with six significant digits each, with commas between them; "none" where there are none."""
    return ", ".join(f"{number:.6g}" for number in numbers) or "none"


def duration(seconds: float) -> str:
    """Three digits: 812 us, 12.3 ms, 1.25 s."""
    unit, factor = next((each for each in _TIMES if seconds * each[1] >= 0.9995), _TIMES[-1])
    return f"{_three(seconds * factor)} {unit}" if seconds else "0 s"


def size(count: float) -> str:
    """Bytes with three digits, in powers of 1000: 812 B, 12.3 KB."""
    power = next((power for power in range(4) if count < 999.5 * 1000**power), 4)
    return f"{_three(count / 1000**power)} {_BYTES[power]}"


_TIMES = (("s", 1.0), ("ms", 1e3), ("us", 1e6))
_BYTES = ("B", "KB", "MB", "GB", "TB")


def _three(number: float) -> str:
    return f"{number:.0f}" if number >= 99.95 or number == int(number) else f"{number:.3g}"
