"""`[tool.dp2ddp]` in pyproject.toml: what the check looks for, and where it does not.

[tool.dp2ddp]
select = ["DDP6"]
ignore = ["DDP605"]
baseline = "ddp-baseline.json"

[tool.dp2ddp.per-file-ignores]
"tests/*" = ["DDP604"]
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dp2ddp.errors import SourceError, did_you_mean

KEYS = ("select", "ignore", "per-file-ignores", "baseline")
FILE = "pyproject.toml"
RULES = ("codemod/rules", "review/rules")  # folders with a file for each rule, named after its code


@dataclass(frozen=True)
class Settings:
    """What a project wants of the check."""

    root: Path  # the folder of pyproject.toml, from which patterns and the baseline are named
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    baseline: Path | None = None


def read_settings(start: Path, commands: Collection[str] = ()) -> Settings:
    """The settings of the nearest pyproject.toml that has a table for us, from a folder upwards.

    `commands` may have tables of their own there. SourceError for a key, a code or a value that is none.
    """
    place = find_table(start)
    return _settings(*place, commands) if place else Settings(Path())


def find_table(start: Path) -> tuple[Path, dict[str, Any]] | None:
    """The nearest pyproject.toml with a table [tool.dp2ddp], from a folder upwards, and that table."""
    for folder in (start.resolve(), *start.resolve().parents):
        path = folder / FILE
        if path.is_file() and "dp2ddp" in (text := path.read_text(encoding="utf-8")):
            table = _parsed(path, text).get("tool", {}).get("dp2ddp")
            if isinstance(table, dict):
                return path, table
    return None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"  # the same module, before Python had it
    toml = importlib.import_module(name)
    try:
        table: dict[str, Any] = toml.loads(text)
    except ValueError as error:
        raise SourceError(f"{path}: not TOML ({error})") from error
    return table


def _settings(path: Path, table: Mapping[str, Any], commands: Collection[str]) -> Settings:
    for key in table:
        if key not in KEYS and key not in commands:
            raise SourceError(
                f"{path}: [tool.dp2ddp] has no key {key!r}{did_you_mean(key, (*KEYS, *commands))}"
            )
    patterns = table.get("per-file-ignores", {})
    if not isinstance(patterns, dict):
        raise SourceError(f"{path}: per-file-ignores is a table: pattern = [codes]")
    baseline = table.get("baseline")
    if baseline is not None and not isinstance(baseline, str):
        raise SourceError(f"{path}: baseline is the name of a file")
    return Settings(
        root=path.parent,
        select=_codes(path, "select", table.get("select", [])),
        ignore=_codes(path, "ignore", table.get("ignore", [])),
        per_file_ignores=tuple((name, _codes(path, name, codes)) for name, codes in patterns.items()),
        baseline=path.parent / baseline if baseline else None,
    )


def _codes(path: Path, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(code, str) for code in value):
        raise SourceError(f"{path}: {key} is a list of codes")
    try:
        return checked_codes(value)
    except UnknownCodeError as error:
        raise SourceError(f"{path}: {key}: {error}") from error


class UnknownCodeError(SourceError):
    """A code, or the beginning of one, that no rule has."""


def checked_codes(codes: Iterable[str]) -> tuple[str, ...]:
    """Codes or families (`DDP6`) in capitals; UnknownCodeError with what may be meant."""
    given = tuple(code.strip().upper() for code in codes if code.strip())
    for code in given:
        if not any(known.startswith(code) for known in known_codes()):
            raise UnknownCodeError(
                f"{code}: no such rule{did_you_mean(code, known_codes())}; `dp2ddp rules` lists them"
            )
    return given


@lru_cache
def known_codes() -> tuple[str, ...]:
    """The codes of all rules that the check may report, by the names of their files: importing them takes longer."""
    top = Path(__file__).resolve().parent.parent
    names = (name for folder in RULES for name in os.listdir(top / folder) if name.startswith("ddp"))
    return tuple(sorted({name.partition("_")[0].upper() for name in names}))
