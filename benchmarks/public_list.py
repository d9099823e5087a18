"""Converts, or verifies, public repositories that lie in FOLDER already, at the settings of public_list.toml.

`python benchmarks/public_list.py FOLDER [--verify] [NAME ...]` prints a line for each. Nothing is fetched, laid out
or built here: what each entry expects to find is written in public_list.toml. Conversions are made in scratch copies,
and verifications make their own: FOLDER stays as it is. Needs Python 3.11.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib  # type: ignore[import-not-found]

SETTINGS = Path(__file__).with_name("public_list.toml")
HELPERS = "ddp_helpers.py"
Settings = dict[str, Any]


def main() -> None:
    arguments = [one for one in sys.argv[1:] if one != "--verify"]
    folder, names = Path(arguments[0]).resolve(), arguments[1:]
    measure = verified if "--verify" in sys.argv else converted
    lines: list[int] = []
    for settings in tomllib.loads(SETTINGS.read_text())["repository"]:
        if names and settings["name"] not in names:
            continue
        place = folder / settings["source"].split("/")[1]
        found = measure(settings, place) if place.is_dir() else Outcome("is not there")
        lines += [found.lines] if found.lines else []
        print(f"{settings['name']:34} {found.text}", flush=True)
    if lines:
        print(f"{len(lines)} converted, {statistics.median(lines):g} lines changed or added in the median")


@dataclass(frozen=True)
class Outcome:
    """What is said of an entry; of a conversion, the lines that it changed or added."""

    text: str
    lines: int = 0


def converted(settings: Settings, place: Path) -> Outcome:
    """Changed lines and hazards of a conversion in a copy."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / place.name
        shutil.copytree(place, copy, symlinks=True)
        code, output, seconds = run(settings, copy, "convert", ["--in-place", "--force", "--json"])
        try:
            report = json.loads(output)
        except ValueError:
            return Outcome(f"exit {code}: {output.strip()[-200:]}")
        hazards = " ".join(f"{one['code']}@{one['file'] or ''}:{one['line']}" for one in report["hazards"])
        lines = added_lines(place, copy)
        return Outcome(f"exit {code}  {lines:4} lines  {seconds:4.0f} s  {hazards}", lines)


def verified(settings: Settings, place: Path) -> Outcome:
    """The verdict of a run on two devices."""
    if "steps" not in settings:
        return Outcome(f"is not run: {settings['seen']}")
    steps = ["--steps", str(settings["steps"])] if settings["steps"] else []
    code, output, seconds = run(settings, place, "verify", ["-n", "2", "--json", *steps])
    try:
        report = json.loads(output)
    except ValueError:
        return Outcome(f"exit {code}: {output.strip()[-200:]}")
    told = [
        f"{verdict['float64']['steps']} steps, {'the same' if verdict['same'] else 'DIFFERENT'}"
        f"{' to the last bit' if verdict['float64']['identical'] else ''}"
        for verdict in report["verdicts"]
    ]
    failed = (report["failed"] or {}).get("error") or report["failure"] or ""
    return Outcome(f"exit {code}  {'; '.join(told)} {failed}  {seconds:4.0f} s")


def run(settings: Settings, place: Path, command: str, options: list[str]) -> tuple[int, str, float]:
    """Exit code, what was said, and seconds of a command of dp2ddp in the folder where the script is started."""
    script = ["-m", settings["module"]] if "module" in settings else [settings["entry"]]
    rest = ["--", *shlex.split(settings.get("arguments", ""))] if command == "verify" else []
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "dp2ddp", command, *script, *options, *rest],
        cwd=place / settings.get("folder", "."),
        env={**os.environ, "OMP_NUM_THREADS": "1", **settings.get("environment", {})},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout or done.stderr, time.perf_counter() - start


def added_lines(before: Path, after: Path) -> int:
    """Lines changed or added in the user's own files; helpers and their import lines are not counted."""
    return sum(
        1
        for path in after.rglob("*.py")
        if path.name != HELPERS
        for line in difflib.unified_diff(text_of(before / path.relative_to(after)), text_of(path), n=0)
        if line.startswith("+") and not line.startswith("+++") and line[1:].strip()
        if not line.startswith("+from ddp_helpers import")
    )


def text_of(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []


if __name__ == "__main__":
    main()
