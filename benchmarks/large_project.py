"""A project of 300 files against a bare libcst parse of the same files; and one of which only five are reached.

`python benchmarks/large_project.py [FILES] [ROUNDS]` makes the project, prints ratios; the two take turns.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import libcst

from dp2ddp.codemod.conversion import Options
from dp2ddp.codemod.convert import convert, plan_program
from dp2ddp.source.parsing import _parse
from dp2ddp.source.projects import read_project

EXAMPLE = Path(__file__).resolve().parent.parent / "tests" / "corpus" / "projects" / "template_trainer"
LAYERS = '''
import os
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

from {package} import helpers_{before}
from {package}.helpers_{before} import Block{before}, scaled


class Block{number}(nn.Module):
    """A residual block of width {number}."""

    def __init__(self, width={number}, depth=2, dropout=0.1):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.inner = Block{before}() if width > 299 else None

    def forward(self, x, mask=None):
        for index, layer in enumerate(self.layers):
            x = x + self.dropout(F.relu(layer(self.norm(x))))
            if mask is not None:
                x = x.masked_fill(mask == 0, 0.0)
        return x if self.inner is None else self.inner(x)


class Meter{number}:
    """Computes and stores the average and the current value."""

    def __init__(self, name, fmt=":f"):
        self.name, self.fmt = name, fmt
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return ("{{name}} {{val" + self.fmt + "}} ({{avg" + self.fmt + "}})").format(**self.__dict__)


def build_{number}(config, **options):
    width = config.get("width", {number})
    return nn.Sequential(Block{number}(width), nn.ReLU(), Block{number}(width, depth=options.get("depth", 1)))


def cosine_{number}(step, total, lr=0.1):
    if step > total:
        return 0.0
    return 0.5 * lr * (1 + math.cos(math.pi * step / total))


def scaled(values, factor={number}):
    """Plain Python with loops, dicts and strings, as utils have it."""
    found = {{}}
    for key, value in sorted(values.items()):
        if isinstance(value, (int, float)):
            found[key] = value * factor
        elif key.startswith("lr"):
            found[key] = "%s-%d" % (value, factor)
    return {{**found, "path": os.path.join("a", str(factor))}}


def accuracy_{number}(output, target, topk=(1,)):
    with torch.no_grad():
        maxk = max(topk)
        _, pred = output.topk(maxk, 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum(0) * 100.0 / target.size(0) for k in topk]
'''


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        entry = make_project(Path(folder), count)
        files = sorted(Path(folder).rglob("*.py"))
        reached = [one.source.path for one in read_project(entry).modules]
        lines = sum(one.read_text().count("\n") for one in files)
        print(f"{len(files)} files, {lines} lines, {len(reached) + 1} reached")
        times = measure(
            {"libcst": lambda: parse(files), "plan": lambda: plan(entry), "all": lambda: whole(entry)},
            rounds,
        )
        few = make_project(Path(folder) / "few", count, reach=2)
        read = [one.source.path for one in read_project(few).modules]
        times |= measure({f"plan, {len(read) + 1} files reached": lambda: plan(few)}, rounds)
    for name, seconds in times.items():
        print(f"{name:28} {seconds:7.3f} s   {seconds / times['libcst']:.2f} of libcst")


def make_project(folder: Path, count: int, reach: int | None = None) -> Path:
    """template_trainer with so many modules more, each importing the one before; the script imports one of them."""
    for path in EXAMPLE.rglob("*.py"):
        place = folder / path.relative_to(EXAMPLE)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(path.read_text())
    own = len(list(EXAMPLE.rglob("*.py")))
    (folder / "zoo").mkdir(exist_ok=True)
    (folder / "zoo" / "__init__.py").write_text("")
    for number in range(count - own - 1):
        text = LAYERS.format(number=number, before=max(number - 1, 0), package="zoo")
        (folder / "zoo" / f"helpers_{number}.py").write_text(text)
    last = count - own - 2 if reach is None else reach
    entry = folder / "train.py"
    if reach is not None:
        entry.write_text("import torch\n\nnet = torch.nn.DataParallel(build({}))\n")
    entry.write_text(
        f"from zoo.helpers_{last} import build_{last}\n" + entry.read_text() + f"\nbuild_{last}({{}})\n"
    )
    return entry


def parse(files: list[Path]) -> None:
    for file in files:
        libcst.parse_module(file.read_bytes())


def plan(entry: Path) -> None:
    _parse.cache_clear()
    plan_program(read_project(entry), Options())


def whole(entry: Path) -> None:
    _parse.cache_clear()
    convert(read_project(entry))


def measure(tasks: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """The median of each; they take turns, so that load meets all alike."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(column) for name, column in times.items()}


if __name__ == "__main__":
    main()
