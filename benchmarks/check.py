"""What `dp2ddp check` costs over 2,500 files, against `grep -rl`: without a hit, with ten; its memory.

`python benchmarks/check.py [ROUNDS]` prints ratios of medians, of the clock and of CPU time (user and system), which
other programs on the machine disturb less; the commands take turns, so that load meets all alike. Start it with the
Python of an environment that has dp2ddp as users install it: an editable installation takes longer to start.
The files are Python's own library, as often as it takes, without those that mention torch.distributed or DataParallel.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = 2500
PATTERN = "DataParallel"
DP2DDP = [str(Path(sys.executable).parent / "dp2ddp"), "check"]


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory() as folder:
        plain, hits = Path(folder) / "plain", Path(folder) / "hits"
        size = make_tree(plain)
        shutil.copytree(plain, hits)
        add_hits(hits)
        costs = measure(rounds, plain, hits)
        few, many = peak_memory(hits), peak_memory(hits, copies=4)
    print(f"{FILES:,} files, {size / 1e6:.0f} MB")
    for name, cost in costs.items():
        print(f"{name:34} {1000 * cost.seconds:6.0f} ms   {1000 * cost.cpu:6.0f} ms of CPU")
    compare(costs, "check, no hit", "grep -rl", "none")
    compare(costs, "check, ten hits", "grep -rl", "none")
    compare(costs, "python -c 'import click'", "grep -rl", "none: what a start alone takes")
    print(f"memory: {few:.0f} MB with ten hits, {many:.0f} MB with forty (goal: flat)")


@dataclass(frozen=True)
class Cost:
    """Of a command, in seconds."""

    seconds: float  # by the clock
    cpu: float  # user and system, with its children


def compare(costs: dict[str, Cost], one: str, other: str, goal: str) -> None:
    """Print how many times the other one takes."""
    clock, cpu = costs[one].seconds / costs[other].seconds, costs[one].cpu / costs[other].cpu
    print(f"{one + ' / ' + other:44} {clock:5.2f}   {cpu:5.2f} of CPU   (goal: {goal})")


def make_tree(folder: Path) -> int:
    """2,500 files without a hit; returns their size in bytes."""
    library = sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))
    texts = [
        data
        for path in library
        if b"istributed" not in (data := path.read_bytes()) and b"arallel" not in data
    ]
    chosen = [texts[place % len(texts)] for place in range(FILES)]
    for place, data in enumerate(chosen):
        target = folder / f"package_{place // 50}" / f"module_{place}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return sum(map(len, chosen))


def add_hits(folder: Path, copies: int = 1) -> None:
    """Five scripts with DataParallel and five with DistributedDataParallel (`copies` times)."""
    sys.path.insert(0, str(ROOT / "tests"))
    from diffs import scripts

    wrapped = {
        path.parent.name: path.read_text() for path in sorted((ROOT / "examples").glob("*/train.py"))[:5]
    }
    ports = scripts(ROOT / "tests" / "pairs" / "ports.diff")
    names = sorted(name for name in ports if name.startswith("tutorial/seeded_"))[:5]
    ported = {name.replace("/", "_"): ports[name].text for name in names}
    for copy in range(copies):
        for name, text in {**wrapped, **ported}.items():
            (folder / f"hit_{copy}_{name}.py").write_text(text)


def measure(rounds: int, plain: Path, hits: Path) -> dict[str, Cost]:
    """Medians."""
    runs = {
        "grep -rl": ["grep", "-rl", "--include=*.py", PATTERN, str(plain)],
        "check, no hit": [*DP2DDP, str(plain)],
        "check, ten hits": [*DP2DDP, str(hits)],
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import click'": [sys.executable, "-c", "import click"],
    }
    for command in runs.values():
        run(command)  # files are in memory
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, command in runs.items():
            costs[name].append(run(command))
    return {
        name: Cost(
            statistics.median(cost.seconds for cost in column), statistics.median(cost.cpu for cost in column)
        )
        for name, column in costs.items()
    }


def run(command: list[str]) -> Cost:
    begin, used = time.perf_counter(), _cpu_of_children()
    subprocess.run(command, cwd=tempfile.gettempdir(), stdout=subprocess.DEVNULL, check=False)
    return Cost(time.perf_counter() - begin, _cpu_of_children() - used)


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def peak_memory(hits: Path, copies: int = 1) -> float:
    """The largest resident size of one process of a run, in MB."""
    add_hits(hits, copies)
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
    code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    command = [sys.executable, "-c", code, *DP2DDP, str(hits)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    return int(answer.stdout) * unit / 1e6


if __name__ == "__main__":
    main()
