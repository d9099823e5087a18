"""The scripts of the corpus: where they are, and what their heads say is expected of them.

Printed whole, or in changed.diff as changes of another one (tests/diffs.py reads it).

# corpus: idioms = sampler=; custom sampler class     the rows of idioms.txt that it has; in one or more lines
# corpus: worlds = 2 3 4                              numbers of devices to verify it on; 2 unless given
# corpus: arguments = --epochs 1                      what the script is started with
# corpus: helpers = WholeBatchDDP Rank0Loader         the distinctive ones (outcomes.py), where that matters
# corpus: module = package.train                     started with `python -m`, from the folder of the project
# corpus: runs = no                                   the original cannot run (old Python): converted only
# corpus: trains = no                                 it makes no optimizer step: what it prints and writes is compared
# corpus: answer = 1 DDP902:22 DDP902:25              a script that is not converted: the exit code of `convert`
                                                      and each hazard (or note) with its line; nothing is written
"""

from __future__ import annotations

import functools
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from diffs import cases as cases_of

from dp2ddp.source.files import decode_source
from dp2ddp.source.projects import Project, read_project
from dp2ddp.source.read_source import read_source

HERE = Path(__file__).resolve().parent
GROUPS = ("data", "loss", "models", "effects", "projects", "notebooks", "negatives")
HEAD = re.compile(r"^# corpus: (\w+) = (.*\S)\s*$", re.MULTILINE)
BETWEEN_ROWS = re.compile(r";(?![^()]*\))")  # one row has a semicolon in parentheses
KEYS = {"idioms", "worlds", "arguments", "helpers", "runs", "trains", "answer", "module"}


@dataclass(frozen=True)
class Case:
    """One script of the corpus."""

    path: Path
    changed: str | None  # its text, where changed.diff has it and no file
    idioms: tuple[str, ...]
    worlds: tuple[int, ...]
    arguments: tuple[str, ...]
    helpers: tuple[str, ...]  # empty: whatever is taken
    runs: bool
    trains: bool
    module: str | None  # "package.train", of what is started with -m
    answer: str | None  # None: it is converted, and trains the same

    @property
    def name(self) -> str:
        return str((self.folder or self.path.with_suffix("")).relative_to(HERE))

    @property
    def folder(self) -> Path | None:
        """That of a project, with all that its script imports and reads; None for a script of its own."""
        group, *folders, _ = self.path.relative_to(HERE).parts
        return HERE / group / folders[0] if folders else None

    def copied_to(self, folder: Path) -> Path:
        """The script (`train.py`, of one of its own) in a new folder with all of its project."""
        if self.folder:
            shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
            return folder / self.path.relative_to(self.folder)
        folder.mkdir()
        copy = folder / f"train{self.path.suffix}"
        copy.write_bytes(self.path.read_bytes() if self.changed is None else self.changed.encode())
        return copy

    def project(self, script: Path | None = None) -> Project:
        """What is read to convert it, or a copy of it."""
        if script is None and self.changed is not None:
            return Project(decode_source(self.changed.encode(), self.path))
        return read_project(script or self.path, as_module=self.module is not None)


def read_case(path: Path, changed: str | None = None) -> Case:
    """What the head of a script says; KeyError for a word that means nothing here."""
    said: dict[str, str] = {}
    text = read_source(path).text if changed is None else changed
    for word, value in HEAD.findall(text):  # of a notebook: its cells, as a script
        said[word] = f"{said[word]}; {value}" if word in said else value
    if unknown := said.keys() - KEYS:
        raise KeyError(f"{path}: {', '.join(sorted(unknown))}")
    return Case(
        path=path,
        changed=changed,
        idioms=tuple(one.strip() for one in BETWEEN_ROWS.split(said.get("idioms", "")) if one.strip()),
        worlds=tuple(map(int, said.get("worlds", "2").split())),
        arguments=tuple(shlex.split(said.get("arguments", ""))),
        helpers=tuple(said.get("helpers", "").split()),
        runs=said.get("runs") != "no",
        trains=said.get("trains") != "no",
        module=said.get("module"),
        answer=said.get("answer"),
    )


@functools.cache
def all_cases() -> tuple[Case, ...]:
    """Every script of the corpus, by group and name; a project has a folder of its own."""
    changed = {HERE / f"{case.name}.py": case.text for case in cases_of(HERE / "changed.diff")}
    return tuple(
        read_case(path, changed.get(path))
        for one in (HERE / group for group in GROUPS)
        for path in (
            *sorted(
                [*one.glob("*.py"), *one.glob("*.ipynb"), *(path for path in changed if path.parent == one)]
            ),
            *(_started(each) for each in _folders(one)),
        )
    )


def _folders(group: Path) -> list[Path]:
    return sorted(one for one in group.iterdir() if one.is_dir() and one.name != "__pycache__")


def _started(project: Path) -> Path:
    """The script or notebook of a project that has a head."""
    files = [*project.rglob("*.py"), *project.rglob("*.ipynb")]
    (found,) = (one for one in files if HEAD.search(read_source(one).text))
    return found
