"""What the launch files for a shell have in common: quoting, long commands over several lines."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

WIDTH = 100


class Raw(str):
    """Words that the shell shall read as they stand: "$port"."""

    __slots__ = ()


def quoted(word: str) -> str:
    return str(word) if isinstance(word, Raw) else shlex.quote(word)


def command(*parts: Sequence[str]) -> str:
    """A command; each part begins a line of its own where one line would be long."""
    lines = [" ".join(map(quoted, part)) for part in parts if part]
    whole = " ".join(lines)
    return whole if len(whole) <= WIDTH else " \\\n    ".join(lines)


def exports(settings: Mapping[str, str]) -> str:
    """The lines that set environment variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())


def comment(text: str) -> str:
    """Text of a user's in a comment: whatever is in it, it ends with the line."""
    return " ".join(text.split())
