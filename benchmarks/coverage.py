"""What each rank loads, moves and sends in converted scripts, by what `convert` chose; nothing is trained.

`python benchmarks/coverage.py FOLDER` prints a Markdown table of the scripts in tests/corpus and of the repositories of
public_list.toml that lie in FOLDER, then the share that is lean, then the reasons of the others, the commonest first.
`--corpus` and `--public` print one half. Lean is: each sample is loaded once in all, each rank moves its own rows
alone, and no batch goes over the network. What runs is a column of its own: the module,
a replica of it, or replicas in turn.

What it cannot know: batches under 64 KB, and of classes of the script's own, are moved whole; and a function that
couples rows makes a large output whole where it is called. Only a run shows these (`dp2ddp bench`). Python 3.11.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import tomllib  # type: ignore[import-not-found]

from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.facts import gather_facts
from dp2ddp.codemod.strategy import Strategy
from dp2ddp.source.projects import module_file, read_project

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from corpus.cases import all_cases  # noqa: E402  (found through the line above)


@dataclass(frozen=True)
class Started:
    """A script and the folder that it is started in."""

    name: str
    folder: Path
    path: str
    as_module: bool


@dataclass(frozen=True)
class Row:
    """What a conversion has each rank do in a training step."""

    name: str
    loads: str
    moves: str
    join: str
    gradients: str
    runs: str
    why_not: str | None  # what keeps it from being lean (None: it is)
    why_replica: str | None  # what keeps the module itself from running (None: it does)


LOADS = {
    "shard": "own rows",
    "share": "rank 0, once",
    "feed": "rank 0, once",
    "replicate": "all, on each rank",
}


COLUMNS = ("loads", "moves", "join", "gradients", "runs", "why not lean", "why a replica")


def main() -> None:
    given = [one for one in sys.argv[1:] if not one.startswith("--")]
    rows: list[Row] = []
    if "--public" not in sys.argv:
        rows += list(table("tests/corpus", corpus()))
    if "--corpus" not in sys.argv:
        rows += list(table("public list", public(Path(given[0]).resolve())))
    print_counts("what keeps it from being lean", (row.why_not for row in rows))
    print_counts("why a replica runs", (row.why_replica for row in rows))


def print_counts(title: str, reasons: Iterable[str | None]) -> None:
    """How often each reason is given, without places and names."""
    counts = Counter(re.sub(r" \([^()]*\)|`[^`]*`", "", reason) for reason in reasons if reason)
    print(f"\n| how often | {title} |\n|---|---|")
    for reason, count in counts.most_common():
        print(f"| {count} | {reason} |")


def corpus() -> Iterator[Started]:
    """The scripts of the corpus that are converted."""
    for case in all_cases():
        if case.answer is None:
            yield Started(case.name, Path.cwd(), str(case.path), case.module is not None)


def public(folder: Path) -> Iterator[Started]:
    """The repositories of the public list that are there."""
    for one in tomllib.loads((HERE / "public_list.toml").read_text())["repository"]:
        place = folder / one["source"].split("/")[1]
        if place.is_dir():
            within = place / one.get("folder", ".")
            os.chdir(within)
            path = str(module_file(one["module"])) if "module" in one else one["entry"]
            if (within / path).exists():
                yield Started(one["name"], within, path, "module" in one)


def table(title: str, scripts: Iterator[Started]) -> Iterator[Row]:
    """Print a line for each script that has a strategy, and the share that is lean."""
    print(f"\n## {title}\n\n| script | {' | '.join(COLUMNS)} |\n|{'---|' * 8}")
    rows = []
    for script in scripts:
        row = row_of(script)
        if row is not None:
            rows.append(row)
            told = [row.name, row.loads, row.moves, row.join, row.gradients, row.runs]
            told += [row.why_not or "", row.why_replica or ""]
            print(f"| {' | '.join(told)} |", flush=True)
            yield row
    lean = sum(row.why_not is None for row in rows)
    print(f"\n{lean} of {len(rows)} are lean: {lean / max(len(rows), 1):.0%}.")


def row_of(script: Started) -> Row | None:
    """What becomes of a script; None where it is left as it is, or refused."""
    os.chdir(script.folder)
    try:
        project = read_project(script.path, script.as_module)
        conversion = convert(project)
    except Exception as error:
        return Row(script.name, "?", "?", "?", "?", "?", f"{type(error).__name__}: {error}", None)
    if conversion.strategy is None or conversion.hazards or not conversion.changed:
        return None
    needs_rank_order = gather_facts(project).needs_rank_order
    return described(script.name, conversion.strategy, needs_rank_order)


def described(name: str, chosen: Strategy, needs_rank_order: bool) -> Row:
    """The words for a strategy."""
    data = chosen.data.value
    own = data in ("share", "shard", "feed")
    why_not = None if own else chosen.data.because.rpartition("share: ")[2].removesuffix(")")
    is_replica = chosen.forward.value == "replica"
    return Row(
        name,
        LOADS[data],
        "own rows" if own else "whole batches",
        chosen.join.value,
        chosen.gradients.value,
        "replicas, in turn" if needs_rank_order else "a replica" if is_replica else "the module",
        why_not,
        chosen.forward.because.partition("does: ")[2] if is_replica else None,
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
