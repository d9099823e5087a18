"""The scripts of the corpus: where they are, and what their heads say is expected of them.

# corpus: idioms = sampler=; custom sampler class     the rows of IDIOMS that it contains; in one or more lines
# corpus: worlds = 2 3 4                              numbers of devices to verify it on; 2 unless given
# corpus: arguments = --epochs 1                      what the script is started with
# corpus: strategy = shard outputs reducer            what must be chosen for it, where that matters
# corpus: trains = no                                 it makes no optimizer step: what it prints and writes is compared
# corpus: answer = 1 DDP902:22 DDP902:25              a script that is not converted: the exit code of `convert`
                                                      and each hazard (or note) with its line; nothing is written
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
GROUPS = ("data", "loss", "models", "effects", "negatives")
HEAD = re.compile(r"^# corpus: (\w+) = (.*\S)\s*$", re.MULTILINE)
BETWEEN_ROWS = re.compile(r";(?![^()]*\))")  # one row has a semicolon in parentheses
KEYS = {"idioms", "worlds", "arguments", "strategy", "trains", "answer"}


@dataclass(frozen=True)
class Case:
    """One script of the corpus."""

    path: Path
    idioms: tuple[str, ...]
    worlds: tuple[int, ...]
    arguments: tuple[str, ...]
    strategy: tuple[str, ...]  # data, join, gradients; empty: whatever is chosen
    trains: bool
    answer: str | None  # None: it is converted, and trains the same

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"


def read_case(path: Path) -> Case:
    """What the head of a script says; KeyError for a word that means nothing here."""
    said: dict[str, str] = {}
    for word, value in HEAD.findall(path.read_text(encoding="utf-8")):
        said[word] = f"{said[word]}; {value}" if word in said else value
    if unknown := said.keys() - KEYS:
        raise KeyError(f"{path}: {', '.join(sorted(unknown))}")
    return Case(
        path=path,
        idioms=tuple(one.strip() for one in BETWEEN_ROWS.split(said.get("idioms", "")) if one.strip()),
        worlds=tuple(map(int, said.get("worlds", "2").split())),
        arguments=tuple(shlex.split(said.get("arguments", ""))),
        strategy=tuple(said.get("strategy", "").split()),
        trains=said.get("trains") != "no",
        answer=said.get("answer"),
    )


def all_cases() -> list[Case]:
    """Every script of the corpus, by group and name."""
    return [read_case(path) for group in GROUPS for path in sorted((HERE / group).glob("*.py"))]
