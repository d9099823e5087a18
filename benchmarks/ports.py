"""What a conversion costs beside ports by hand: `python benchmarks/ports.py [NAMES] [-n 2] [--rounds 3] [--steps 30]`.

Of each folder in benchmarks/ports, train_dp.py is converted with this tree's `dp2ddp convert`. Then the conversion,
the port by hand, and the same with Accelerate and with Fabric run one after another, round by round (real torchrun,
gloo, one thread a rank), so that other programs on the machine disturb all alike. Ratios are against the port by hand.
On virtual devices the conversion, the port and DataParallel run once more, to be counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PORTS = HERE / "ports"
NAMES = ("cnn", "lm", "inside", "contrastive", "gan", "tiny", "images")
KINDS = {
    "converted": "train_converted",
    "port": "train_ddp",
    "accelerate": "train_accelerate",
    "fabric": "train_fabric",
}
PATIENCE = 300.0  # seconds for a run


@dataclass(frozen=True)
class Figures:
    """One run: medians over its steps, of the rank that had most."""

    step: float  # seconds
    quick: float  # seconds of the quickest tenth: less of it is other programs'
    cpu: float  # seconds of a rank and its workers
    peak: float  # bytes that were resident at once, after the first steps
    above: float  # of these, what came after torch was imported
    device: float  # bytes that were allocated on a GPU at once, after the first steps


@contextlib.contextmanager
def scratch(name: str) -> Iterator[Path]:
    """A copy of a folder of ports, with the conversion in it."""
    with tempfile.TemporaryDirectory(prefix="ports-") as place:
        folder = Path(place) / name
        shutil.copytree(PORTS / name, folder, ignore=shutil.ignore_patterns("__pycache__", "*.pth"))
        command = [sys.executable, "-m", "dp2ddp", "convert", "train_dp.py", "-o", "train_converted.py"]
        told = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if not (folder / "train_converted.py").exists():
            raise RuntimeError(f"{name} is not converted: {told.stdout}{told.stderr}")
        (folder / "told").write_text(told.stdout + told.stderr, encoding="utf-8")
        yield folder


def run(
    folder: Path, command: Sequence[str], steps: int, patience: float = PATIENCE, **variables: str
) -> list[dict[str, Any]]:
    """Start a command that counts; what its ranks have counted, in order."""
    with tempfile.TemporaryDirectory(prefix="counts-") as counts:
        path = os.pathsep.join([str(HERE / "counted"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        told = {
            "COUNTS": counts,
            "COUNTS_STEPS": str(steps),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": path,
            **variables,
        }
        code, errors = run_for(patience, [sys.executable, "-m", *command], folder, {**os.environ, **told})
        found = [json.loads(file.read_text()) for file in sorted(Path(counts).glob("rank*.json"))]
        if code or not found:
            raise RuntimeError(f"{' '.join(command)} ended with {code}: {errors[-2000:]}")
        return found


def run_for(
    patience: float,
    command: Sequence[str],
    folder: Path,
    variables: dict[str, str],
    output: str | Path = os.devnull,
) -> tuple[int | str, str]:
    """Exit code (or that there was none in time) and what went wrong; torchrun ends its ranks when it is ended."""
    with (
        open(output, "w", encoding="utf-8") as told,
        subprocess.Popen(
            command, cwd=folder, env=variables, stdout=told, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        try:
            errors = process.communicate(timeout=patience)[1]
            return process.returncode, errors
        except subprocess.TimeoutExpired:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            return f"nothing within {patience:.0f} s", process.communicate()[1]


def timed(
    folder: Path, kind: str, world: int, arguments: Sequence[str], steps: int, **variables: str
) -> Figures:
    """One run of one version under a real torchrun on the CPU."""
    command = [*torchrun(world), f"{KINDS[kind]}.py", *arguments]
    return figures_of(run(folder, command, steps, PATIENCE, **variables))


def torchrun(world: int) -> list[str]:
    return ["torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]


def figures_of(ranks: Sequence[dict[str, Any]]) -> Figures:
    """The medians of one run."""
    return Figures(
        step=max(statistics.median(rank["times"]) for rank in ranks),
        quick=max(statistics.quantiles(rank["times"], n=10)[0] for rank in ranks),
        cpu=max(statistics.median(rank["cpu"]) + rank["children"] for rank in ranks),
        peak=max(rank["peak"] for rank in ranks),
        above=max(rank["peak"] - rank["resident"] for rank in ranks),
        device=max(rank["device"] for rank in ranks),
    )


def counted(
    folder: Path, script: str, mode: str, world: int, arguments: Sequence[str], steps: int
) -> Counted:
    """One run on virtual devices, in which everything is counted."""
    start = ["dp2ddp", "run", script, "--mode", mode, "-n", str(world), "--virtual", "--"]
    ranks = run(folder, [*start, *arguments], steps, COUNTS_ALL="1")
    return Counted(
        tuple(rank["counts"] for rank in ranks), max(rank["peak"] - rank["resident"] for rank in ranks)
    )


@dataclass(frozen=True)
class Counted:
    """What each rank did in each step, by name."""

    ranks: tuple[Any, ...]
    above: float

    def a_step(self, name: str) -> float:
        """The median over steps, of the rank that had most of it."""
        return max(float(statistics.median(step.get(name, 0) for step in steps)) for steps in self.ranks)

    def all_ranks(self, name: str) -> float:
        """The median over steps, of all ranks together."""
        return sum(float(statistics.median(step.get(name, 0) for step in steps)) for steps in self.ranks)

    def places(self, start: str) -> str:
        """Who did so, and how often in a step."""
        found = {name for steps in self.ranks for step in steps for name in step if name.startswith(start)}
        often = {name[len(start) :]: self.a_step(name) for name in sorted(found)}
        return ", ".join(f"{name} {count:g}" for name, count in often.items() if count) or "-"


def compare_times(folder: Path, world: int, arguments: Sequence[str], steps: int, rounds: int) -> str:
    """The rows of the first table."""
    runs: dict[str, list[Figures]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            runs[kind].append(timed(folder, kind, world, arguments, steps))
    lines = []
    for kind, figures in runs.items():
        cells = [f"| {folder.name} | {kind}"]
        for name, unit, form in SHOWN:
            own = statistics.median(getattr(one, name) for one in figures)
            ratios = [getattr(a, name) / getattr(b, name) for a, b in zip(figures, runs["port"], strict=True)]
            cells.append(f"{form.format(own * unit)} ({statistics.median(ratios):.2f})")
        lines.append(" | ".join(cells) + " |")
    return "\n".join(lines)


def compare_counts(folder: Path, world: int, arguments: Sequence[str], steps: int) -> str:
    """The rows of the second table."""
    runs = {
        "converted": counted(folder, "train_converted.py", "ddp", world, arguments, steps),
        "port": counted(folder, "train_ddp.py", "ddp", world, arguments, steps),
        "DataParallel": counted(folder, "train_dp.py", "dp", world, arguments, steps),
    }
    lines = []
    for kind, one in runs.items():
        cells = [
            folder.name,
            kind,
            *(f"{one.a_step(name):,.0f}" for name in ("collectives", "exchanged", "sent", "keys")),
        ]
        cells += [f"{one.all_ranks(name):,.0f}" for name in ("moved", "between devices")]
        cells += [f"{one.a_step(name):g}" for name in ("waits", "waits of helpers")]
        cells += [f"{one.above / 2**20:.0f} MB", one.places("by "), one.places("wait in ")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def head(columns: str) -> str:
    """The first two lines of a table."""
    names = columns.split(", ")
    return f"| {' | '.join(names)} |\n|{' --- |' * len(names)}"


SHOWN = (
    ("step", 1e3, "{:.1f} ms"),
    ("quick", 1e3, "{:.1f} ms"),
    ("cpu", 1e3, "{:.1f} ms"),
    ("peak", 2**-20, "{:.0f} MB"),
    ("above", 2**-20, "{:.0f} MB"),
)
TIMES = head(
    "script, version, step (ratio to the port), its quickest tenth, processor, peak memory, of it behind torch's import"
)
COUNTS = head(
    "script, version, collectives, bytes in them, bytes sent with gradients, keys of the store, "
    "bytes to devices of all ranks, between devices, waits, of helpers, memory behind import, asked by, waits in"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("-n", type=int, default=2, help="ranks")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", choices=["times", "counts"])
    options = parser.parse_args()
    arguments = ["--steps", str(options.steps)]
    for title, wanted in ((TIMES, "times"), (COUNTS, "counts")):
        if options.only not in (None, wanted):
            continue
        print(title, flush=True)
        for name in options.names:
            with scratch(name) as folder:
                if wanted == "times":
                    rows = compare_times(folder, options.n, arguments, options.steps, options.rounds)
                else:
                    rows = compare_counts(folder, options.n, ["--steps", "13"], 13)
                print(rows, flush=True)


if __name__ == "__main__":
    main()
