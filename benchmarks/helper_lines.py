"""How many lines of helpers `dp2ddp convert` writes, and how many lines of codemod and templates we keep for them.

`python benchmarks/helper_lines.py [PUBLIC]` converts the textbook ImageNet script, every script of tests/corpus and,
where their checkouts lie in PUBLIC (public_list.py says how), the public programs: the lines of ddp_helpers.py that
each needs, what else is said, and seconds. `--list` prints each script.
`python benchmarks/helper_lines.py --lines` counts the code of this repository. Needs Python 3.11.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import math
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import tomllib  # type: ignore[import-not-found]

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.codemod.convert import convert
from dp2ddp.errors import Dp2DdpError
from dp2ddp.source.projects import module_file, read_project

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
IMAGENET = ROOT / "tests" / "codemod" / "imagenet.py"
PACKAGES = {
    "codemod": (
        "dp2ddp/codemod/model",
        "dp2ddp/codemod/knowledge",
        "dp2ddp/codemod",
        "dp2ddp/codemod/*.py",
    ),
    "idiomatic style": ("dp2ddp/codemod/idiomatic",),
    "templates": ("templates",),
}
sys.path.insert(0, str(ROOT / "tests"))

from corpus.cases import all_cases  # noqa: E402  (found through the line above)


@dataclass(frozen=True)
class Started:
    """A script, and the folder that it is started in."""

    name: str
    folder: Path
    path: str
    as_module: bool = False


class Kind(Enum):
    """What became of a script."""

    CONVERTED = "converted"
    REFUSED = "hazards"
    UNCHANGED = "nothing to do"
    FAILED = "failed"


@dataclass(frozen=True)
class Outcome:
    """A conversion: how it ended, its lines of helpers, and the words for it."""

    name: str
    kind: Kind
    lines: int
    seconds: float
    text: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("public", nargs="?", type=Path, help="the folder with checkouts of the public list")
    parser.add_argument("--list", action="store_true", help="a line for each script")
    parser.add_argument("--lines", action="store_true", help="lines of this repository instead")
    options = parser.parse_args()
    if options.lines:
        print(count_packages())
        return
    groups = {"ImageNet": imagenet(), "corpus": corpus()}
    if options.public:
        groups["public list"] = public(options.public.resolve())
    for title, scripts in groups.items():
        outcomes = []
        for script in scripts:
            outcomes.append(outcome_of(script))
            if options.list:
                print(row(outcomes[-1]), flush=True)
        print(summary(title, outcomes), flush=True)


# ---- scripts


def imagenet() -> Iterator[Started]:
    yield Started("imagenet", ROOT, str(IMAGENET))


def corpus() -> Iterator[Started]:
    for case in (one for one in all_cases() if one.changed is None):  # those that are files
        yield Started(case.name, ROOT, str(case.path), case.module is not None)


def public(folder: Path) -> Iterator[Started]:
    """The entries of the public list whose checkouts are there."""
    for one in tomllib.loads((HERE / "public_list.toml").read_text())["repository"]:
        within = folder / one["source"].split("/")[1] / one.get("folder", ".")
        if not within.is_dir():
            continue
        with contextlib.chdir(within):  # type: ignore[attr-defined]
            path = str(module_file(one["module"])) if "module" in one else one["entry"]
        yield Started(one["name"], within, path, "module" in one)


# ---- what becomes of them


def outcome_of(script: Started) -> Outcome:
    """Convert a script in this process; nothing is written."""
    start = time.perf_counter()
    with contextlib.chdir(script.folder):  # type: ignore[attr-defined]
        try:
            conversion = convert(read_project(script.path, script.as_module))
        except (Dp2DdpError, OSError) as error:
            return Outcome(script.name, Kind.FAILED, 0, time.perf_counter() - start, str(error))
    seconds = time.perf_counter() - start
    said = " ".join(sorted({f"{one.code}:{one.line}" for one in conversion.hazards}))
    return Outcome(script.name, kind_of(conversion), lines_of_helpers(conversion), seconds, said)


def kind_of(conversion: Conversion) -> Kind:
    if conversion.hazards:
        return Kind.REFUSED
    return Kind.CONVERTED if conversion.changed else Kind.UNCHANGED


def lines_of_helpers(conversion: Conversion) -> int:
    """All lines of the module that is written beside the script, its docstrings and blank lines too."""
    texts = (data.decode() for data in conversion.helper_file.values())
    return 0 if conversion.hazards else sum(len(text.splitlines()) for text in texts)


def row(outcome: Outcome) -> str:
    said = f"{outcome.kind.value} {outcome.text}".strip()
    return f"{outcome.name:44} {outcome.lines:5} lines {outcome.seconds:6.2f} s  {said}"


def summary(title: str, outcomes: Sequence[Outcome]) -> str:
    """The figures of a group, in a line."""
    kinds = ", ".join(f"{sum(one.kind is kind for one in outcomes)} {kind.value}" for kind in Kind)
    lines = sorted(one.lines for one in outcomes if one.kind is Kind.CONVERTED)
    if not lines:
        return f"{title}: {kinds}"
    nine_of_ten = lines[math.ceil(0.9 * len(lines)) - 1]
    seconds = statistics.median(one.seconds for one in outcomes)
    return (
        f"{title}: {kinds}; lines of helpers: median {statistics.median(lines):g}, nine of ten at most "
        f"{nine_of_ten}, most {lines[-1]}; {seconds:.2f} s in the median"
    )


# ---- the code of this repository


@dataclass(frozen=True)
class Lines:
    """Lines of some files: all of them, and what is neither blank, comment, docstring nor example."""

    everything: int = 0
    logic: int = 0

    def __add__(self, other: Lines) -> Lines:
        return Lines(self.everything + other.everything, self.logic + other.logic)


def count_packages() -> str:
    """A table: each package, then the folders that it consists of."""
    rows = ["| | files | all lines | logic |", "|---|---|---|---|"]
    for title, places in PACKAGES.items():
        files = sorted({path for place in places for path in python_files(place)})
        rows.append(table_row(f"**{title}**", files))
        parts = sorted({path.parent for path in files})
        for part in parts if len(parts) > 1 else ():
            own = [path for path in files if path.parent == part]
            rows.append(table_row(str(part.relative_to(ROOT)), own))
    return "\n".join(rows)


def python_files(place: str) -> Iterable[Path]:
    """Those of a pattern, or of a folder and all that is in it; none where the folder has gone."""
    return ROOT.glob(place) if place.endswith(".py") else (ROOT / place).rglob("*.py")


def table_row(name: str, files: Iterable[Path]) -> str:
    counted = [count_lines(path.read_text(encoding="utf-8")) for path in files]
    total = sum(counted, Lines())
    return f"| {name} | {len(counted)} | {total.everything:,} | {total.logic:,} |"


def count_lines(text: str) -> Lines:
    """Lines of a module. Examples of rules are the class attribute `examples`."""
    tree = ast.parse(text)
    left_out = {line for node in ast.walk(tree) for part in prose_of(node) for line in lines_of(part)}
    written = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    return Lines(len(text.splitlines()), len(written - left_out))


def prose_of(node: ast.AST) -> Iterator[ast.stmt]:
    """The docstring of a module, class or function, and the examples of a rule."""
    if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    if ast.get_docstring(node, clean=False) is not None:
        yield node.body[0]
    if isinstance(node, ast.ClassDef):
        for each in node.body:
            targets = each.targets if isinstance(each, ast.Assign) else [getattr(each, "target", None)]
            if any(isinstance(one, ast.Name) and one.id == "examples" for one in targets):
                yield each


def lines_of(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
