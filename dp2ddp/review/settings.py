"""`[tool.dp2ddp]` in pyproject.toml: what the check looks for, and where it does not (docs/check.md)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dp2ddp.errors import OptionError, SourceError, did_you_mean, refuse_unknown_codes
from dp2ddp.source.pyproject import find_table, path_below

if TYPE_CHECKING:
    from dp2ddp.review.problems import PlacedProblem

KEYS = ("select", "ignore", "per-file-ignores", "baseline")


@dataclass(frozen=True)
class Settings:
    """What a project wants of the check."""

    root: Path  # the folder of pyproject.toml, from which patterns and the baseline are named
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (pattern of a path, codes)
    baseline: Path | None = None
    unread: Path | None = None  # a file of another user's, which may have wanted something else

    def takes(self, problem: PlacedProblem) -> bool:
        """Whether the user wants to see a problem; codes may be families (`DDP6`)."""
        if self.select and not problem.code.startswith(self.select):
            return False
        path = Path(os.path.relpath(problem.file, self.root))
        leaves_out = (codes for pattern, codes in self.per_file_ignores if _matches(path, pattern))
        return not any(problem.code.startswith(codes) for codes in (*leaves_out, self.ignore) if codes)


def _matches(path: Path, pattern: str) -> bool:
    """`tests/*` as well as `*.ipynb` and `train.py`; a folder stands for all that is in it."""
    return path.match(pattern) or any(parent.match(pattern.rstrip("/*")) for parent in path.parents)


def read_settings(start: Path, commands: Collection[str] = ()) -> Settings:
    """The settings of the nearest pyproject.toml that has a table for us, from a folder upwards.

    `commands` may have tables of their own there. SourceError for a key, a code or a value that is none.
    """
    found = find_table(start)
    path, table = found.path, found.content
    if path is None:
        return Settings(Path(), unread=found.unread)
    for key in table:
        if key not in KEYS and key not in commands:
            raise SourceError(
                f"{path}: [tool.dp2ddp] has no key {key!r}{did_you_mean(key, (*KEYS, *commands))}"
            )
    patterns = table.get("per-file-ignores", {})
    if not isinstance(patterns, dict):
        raise SourceError(f"{path}: per-file-ignores is a table: pattern = [codes]")
    baseline = table.get("baseline")
    return Settings(
        root=path.parent,
        select=_codes(path, "select", table.get("select", [])),
        ignore=_codes(path, "ignore", table.get("ignore", [])),
        per_file_ignores=tuple((name, _codes(path, name, codes)) for name, codes in patterns.items()),
        baseline=None if baseline is None else path_below(path, "baseline", baseline),
    )


def _codes(path: Path, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(code, str) for code in value):
        raise SourceError(f"{path}: {key} is a list of codes")
    try:
        return checked_codes(value)
    except OptionError as error:
        raise SourceError(f"{path}: {key}: {error}") from error


def checked_codes(codes: Iterable[str]) -> tuple[str, ...]:
    """Codes or families (`DDP6`) in capitals; OptionError for what no rule has."""
    given = tuple(code.strip().upper() for code in codes if code.strip())
    if given:  # who names no code needs no rule where nothing is found
        refuse_unknown_codes(given, known_codes())
    return given


@lru_cache
def known_codes() -> tuple[str, ...]:
    """The codes of all rules that the check may report."""
    from dp2ddp.codemod.rule import rules_of_style
    from dp2ddp.review.check_rule import check_rules

    return tuple(sorted(rule.code for rule in (*rules_of_style("exact"), *check_rules())))
