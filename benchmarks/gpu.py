"""All that waits for a GPU, in one command of at most eight minutes: `python benchmarks/gpu.py [--small] [--out FILE]`.

The tests for GPUs, then DataParallel, its conversion and a port by hand side by side, for ResNet-50 on made-up images
and a language model: seconds a step, memory a rank, and how much of the sums of gradients runs beside backward. On a
single GPU two ranks share it, over gloo (that says nothing of speed, but all code runs); on more, each rank has one,
over NCCL. `--small` runs the same code on the processor. torch 2.4 or newer, Python 3.10 or newer.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MINUTES = 8.0


@dataclass(frozen=True)
class Workload:
    """A folder of benchmarks/ports, and what its scripts are started with."""

    name: str
    arguments: tuple[str, ...]
    small: tuple[str, ...]


WORKLOADS = (
    Workload(
        "resnet50",
        ("--steps", "30", "--batch-size", "128"),
        ("--steps", "12", "--batch-size", "4", "--size", "32", "--width", "4"),
    ),
    Workload(
        "lm",
        ("--steps", "40", "--batch-size", "128", "--length", "64"),
        ("--steps", "12", "--batch-size", "4", "--length", "4"),
    ),
)
CODEMODS = ("small", "old")


class Clock:
    """What is left of the eight minutes."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    def left(self, at_most: float) -> float:
        return max(1.0, min(at_most, self.end - time.monotonic()))


def measure(options: argparse.Namespace) -> Iterator[str]:
    """The lines of the table, as they are found."""
    clock, world = Clock(options.minutes), max(2, torch.cuda.device_count())
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    backend = "nccl" if torch.cuda.device_count() >= world else "gloo"
    yield f"torch {torch.__version__}, Python {sys.version.split()[0]}, {', '.join(names) or 'no GPU'}"
    yield f"{world} ranks over {backend}"
    yield f"tests/gpu: {attempt(lambda: run_tests(clock.left(150)))}"
    yield ""
    yield "| script | version | step | to the port | memory a rank | sums beside backward |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for workload in WORKLOADS:
        yield from compare(workload, options.small, world, clock)


def compare(workload: Workload, small: bool, world: int, clock: Clock) -> Iterator[str]:
    """A row for each version."""
    arguments = workload.small if small else workload.arguments
    with tempfile.TemporaryDirectory(prefix="gpu-") as place:
        folder = Path(place) / workload.name
        shutil.copytree(HERE / "ports" / workload.name, folder, ignore=shutil.ignore_patterns("__pycache__"))
        ranks = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(world),
        ]
        port = attempt(
            lambda: timed(folder, [*ranks, str(HERE / "gpu_rank.py")], "train_ddp.py", arguments, clock)
        )
        yield row(workload.name, "port by hand", port, port)
        alone = [sys.executable, str(HERE / "gpu_rank.py")]
        yield row(
            workload.name,
            "DataParallel",
            attempt(lambda: timed(folder, alone, "train_dp.py", arguments, clock)),
            port,
        )
        for codemod in CODEMODS:
            found = attempt(lambda codemod=codemod: converted(folder, ranks, codemod, arguments, clock))  # type: ignore[misc]
            yield row(workload.name, f"converted ({codemod})", found, port)


def converted(folder: Path, ranks: list[str], codemod: str, arguments: tuple[str, ...], clock: Clock) -> Any:
    into = folder.with_name(f"{folder.name}-{codemod}")
    shutil.copytree(folder, into)
    variables = {**os.environ, "DP2DDP_CODEMOD": codemod}
    command = [sys.executable, "-m", "dp2ddp", "convert", "train_dp.py", "-o", "train_converted.py"]
    told = subprocess.run(
        command, cwd=into, env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    if not (into / "train_converted.py").exists():
        raise RuntimeError(told.stdout + told.stderr)
    return timed(into, [*ranks, str(HERE / "gpu_rank.py")], "train_converted.py", arguments, clock)


def timed(folder: Path, start: list[str], script: str, arguments: tuple[str, ...], clock: Clock) -> Any:
    """What the ranks of a run found, in order."""
    with tempfile.TemporaryDirectory(prefix="found-") as found:
        run = subprocess.run(
            [*start, found, script, *arguments],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=clock.left(100),
            check=False,
        )
        files = sorted(Path(found).glob("*.json"))
        if run.returncode or not files:
            raise RuntimeError(f"ended with {run.returncode}: {run.stderr[-1500:]}")
        return [json.loads(file.read_text()) for file in files]


def run_tests(seconds: float) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "tests" / "gpu")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    return (run.stdout.strip().splitlines() or [run.stderr[-500:]])[-1]


def attempt(work: Callable[[], Any]) -> Any:
    """What it found, or why not: one part that fails leaves time for the others."""
    try:
        return work()
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return f"failed: {error}"


def row(name: str, version: str, found: Any, port: Any) -> str:
    if isinstance(found, str):
        return f"| {name} | {version} | {' '.join(found.split())} | | | |"
    step, memory = max(rank["step"] for rank in found), max(rank["memory"] for rank in found)
    ratio = "" if isinstance(port, str) else f"{step / max(rank['step'] for rank in port):.2f}"
    shares = [rank["beside"] for rank in found if rank["beside"] is not None]
    beside = f"{100 * min(shares):.0f} %" if shares else ""
    return f"| {name} | {version} | {1e3 * step:.1f} ms | {ratio} | {memory / 2**20:.0f} MB | {beside} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="on the processor, in half a minute")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--out", type=Path, default=Path("gpu.md"), help="the same table in a file")
    options = parser.parse_args()
    lines = []
    for line in measure(options):
        print(line, flush=True)
        lines.append(line)
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
