"""What each rank loads, moves and sends in converted scripts, by what `convert` chose; nothing is trained.

`python benchmarks/coverage.py FOLDER` prints a Markdown table of the scripts in tests/corpus and of the repositories of
public_list.toml that lie in FOLDER, then the share that is lean, then the reasons of the others, the commonest first.
`--corpus` and `--public` print one half. Lean is: each sample is loaded once in all, each rank moves its own rows
alone, and no batch goes over the network. Whether ranks run the model at once or in turn is a column of its own.

What it cannot know: batches under 64 KB, and of classes of the script's own, are moved whole; and a function that
couples rows makes a large output whole where it is called. Only a run shows these (`dp2ddp bench`). Python 3.11.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
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
    takes_turns: bool
    why_not: str | None  # what keeps it from being lean (None: it is)


LOADS = {
    "shard": "own rows",
    "share": "rank 0, once",
    "feed": "rank 0, once; sent to all",
    "replicate": "all, on each rank",
}


def main() -> None:
    given = [one for one in sys.argv[1:] if not one.startswith("--")]
    rows: list[Row] = []
    if "--public" not in sys.argv:
        rows += list(table("tests/corpus", corpus()))
    if "--corpus" not in sys.argv:
        rows += list(table("public list", public(Path(given[0]).resolve())))
    reasons = Counter(re.sub(r" \([^()]*\)|`[^`]*`", "", row.why_not) for row in rows if row.why_not)
    print("\n| how often | what keeps it |\n|---|---|")
    for reason, count in reasons.most_common():
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
    print(
        f"\n## {title}\n\n| script | loads | moves | join | gradients | turns | why not lean |\n|{'---|' * 7}"
    )
    rows = []
    for script in scripts:
        row = row_of(script)
        if row is not None:
            rows.append(row)
            turns = "in turn" if row.takes_turns else "at once"
            told = (row.name, row.loads, row.moves, row.join, row.gradients, turns, row.why_not or "")
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
        return Row(script.name, "?", "?", "?", "?", False, f"{type(error).__name__}: {error}")
    if conversion.strategy is None or conversion.hazards or not conversion.changed:
        return None
    takes_turns = gather_facts(project).takes_turns
    return described(script.name, conversion.strategy, takes_turns)


def described(name: str, chosen: Strategy, takes_turns: bool) -> Row:
    """The words for a strategy."""
    data, join = chosen.data.value, chosen.join.value
    sends = data == "feed" or (data, join) == ("shard", "batch")
    own = data == "share" or data == "shard" and join != "batch"
    why_not = None
    if sends or not own:
        why_not = chosen.data.because.rpartition("share: ")[2].removesuffix(")")
    moves = "own rows" if own else "whole batches"
    return Row(name, LOADS[data], moves, join, chosen.gradients.value, takes_turns, why_not)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
