"""What real DataParallel scripts contain, and which scripts of the corpus have it: `python3 tests/corpus/idioms.py`.

The rows (idioms.txt) are those of a reading of 95 public repositories; a number says how many of the 95 contain the
idiom. A row that two or more of them have must be in two scripts at least. The command prints them, as the site has
them, and what becomes of each script.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENOUGH = 2  # repositories that have an idiom, and scripts that must have it then


@dataclass(frozen=True)
class Idiom:
    """One row: what was seen, in which group of the reading, in how many of the 95 repositories."""

    group: str
    text: str
    repositories: int


@dataclass(frozen=True)
class Entry:
    """One script, as the page shows it."""

    name: str  # group/name
    idioms: tuple[str, ...]
    outcome: str  # its helpers, or the expected answer


def _read_rows(text: str) -> tuple[Idiom, ...]:
    """Groups at the margin; under each, indented, a number and the text of a row."""
    rows, group = [], ""
    for line in text.strip().splitlines():
        if line.startswith(" "):
            number, row = line.split(maxsplit=1)
            rows.append(Idiom(group, row, int(number)))
        else:
            group = line
    return tuple(rows)


IDIOMS = _read_rows(Path(__file__).with_name("idioms.txt").read_text(encoding="utf-8"))


def missing(entries: Sequence[Entry]) -> list[Idiom]:
    """The rows of which the corpus has too few scripts."""
    found = _scripts_by_row(entries)
    return [
        idiom for idiom in IDIOMS if idiom.repositories >= ENOUGH and len(found.get(idiom.text, ())) < ENOUGH
    ]


def page(entries: Sequence[Entry]) -> str:
    """The idioms and their scripts, a page of the site (docs/conf.py)."""
    return "\n".join([*_head(entries), *_idiom_lists(entries)]) + "\n"


def outcomes(entries: Sequence[Entry]) -> str:
    """What becomes of each script."""
    return "\n".join(_script_tables(entries)) + "\n"


def _scripts_by_row(entries: Sequence[Entry]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in entries:
        for row in entry.idioms:
            found.setdefault(row, []).append(entry.name)
    return found


_HEAD = """\
# What real scripts contain

Counted in the training code of 95 public repositories with DataParallel: behind each idiom how many of the 95 have it
(losses, gradients, decisions and inputs were found by reading, and are lower bounds), and how many scripts of
`tests/corpus`; below it these scripts, by their folder. CI converts and verifies them. What becomes of an idiom:
[data, losses and models](training.md), [decisions and effects](effects.md), [rules](rules/README.md).

{scripts} scripts, {idioms} idioms; {missing} of those that two or more repositories have are in fewer than two."""


def _head(entries: Sequence[Entry]) -> list[str]:
    return [_HEAD.format(scripts=len(entries), idioms=len(IDIOMS), missing=len(missing(entries)))]


def _idiom_lists(entries: Sequence[Entry]) -> list[str]:
    found = _scripts_by_row(entries)
    lines = []
    for group in dict.fromkeys(idiom.group for idiom in IDIOMS):
        lines += ["", f"## {group}", ""]
        for idiom in IDIOMS:
            if idiom.group == group:
                lines += _item(idiom, found.get(idiom.text, []))
    return lines


def _item(idiom: Idiom, scripts: Sequence[str]) -> list[str]:
    """`- nn.DataParallel: 37 of the 95, 3 scripts`, and on the next line `data: a, b; loss: c`."""
    text = re.sub(r"([*_<\[])", r"\\\1", idiom.text)  # `from x import *`, `__name__`
    head = (
        f"- {text}: {idiom.repositories} of the 95, {len(scripts)} script{'' if len(scripts) == 1 else 's'}"
    )
    folders: dict[str, list[str]] = {}
    for script in scripts:
        folder, _, name = script.partition("/")
        folders.setdefault(folder, []).append(name)
    if not scripts:
        return [head]
    return [
        f"{head}\\",
        "  " + "; ".join(f"*{folder}*: {', '.join(names)}" for folder, names in folders.items()),
    ]


def _script_tables(entries: Sequence[Entry]) -> list[str]:
    lines = ["", "## What becomes of them", ""]
    outcomes = [entry.outcome for entry in entries]
    for outcome in sorted(set(outcomes), key=lambda one: (-outcomes.count(one), one)):
        lines.append(f"- {outcome}: {outcomes.count(outcome)}")
    lines += ["", "| script | what runs on ranks, what loads; or the answer |", "|---|---|"]
    return [*lines, *(f"| {entry.name} | {entry.outcome} |" for entry in entries)]


def _corpus() -> list[Entry]:
    """Every script, each converted."""
    from corpus.cases import all_cases
    from corpus.outcomes import outcome

    return [Entry(case.name, case.idioms, outcome(case).words) for case in all_cases()]


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / ".ci"), str(ROOT / "tests")]
    import environment

    environment.enter("dev")
    corpus = _corpus()
    print(page(corpus), outcomes(corpus), sep="\n", end="")
