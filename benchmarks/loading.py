"""What loading costs: `python benchmarks/loading.py [SHAPES] [-n 2] [--rounds 5]`.

The same loop over the same samples with three loaders, one after another, round by round, so that other programs on
the machine disturb all alike: `share` as conversions have it; the
port by hand (DistributedSampler, a share of the batch and of the workers for each rank); and the one process of
DataParallel. All have the same workers together. A step looks at the rank's own rows, and nothing else is computed or
exchanged.
Seconds are those of an epoch: of the rank that took longest, from the start of the workers to their end; until the
first batch; and of the processor, for all ranks and workers together. Of each the median and the quickest.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from dp2ddp.templates.loader import Rank0Loader
from dp2ddp.templates.ranks import init_distributed
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

KINDS = ("share", "port", "DataParallel")
EPOCHS = 4  # in a run, of which the first is left out
PATIENCE = 600.0  # seconds for a run


@dataclass(frozen=True)
class Shape:
    """What is loaded."""

    side: int  # pixels of an image that is kept
    crop: int  # pixels of what is cut out of it
    batch: int
    steps: int
    workers: int


SHAPES = {
    "imagenet": Shape(256, 224, 32, 32, 2),
    "large": Shape(256, 224, 64, 16, 2),  # 38 MB a batch
    "cifar": Shape(40, 32, 128, 64, 2),
    "cifar-alone": Shape(40, 32, 128, 64, 0),
}


class Crops(Dataset[Any]):
    """Random crops and flips of noise, as bytes, to normalised numbers."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        generator = torch.Generator().manual_seed(1)
        size = (64, 3, shape.side, shape.side)
        self.images = torch.randint(0, 256, size, generator=generator, dtype=torch.uint8)

    def __len__(self) -> int:
        return self.shape.batch * self.shape.steps

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        crop, free = self.shape.crop, self.shape.side - self.shape.crop
        top, left = random.randint(0, free), random.randint(0, free)
        image = self.images[index % len(self.images)][:, top : top + crop, left : left + crop]
        image = image.flip(2) if random.random() < 0.5 else image
        return image.float().div_(127.5).sub_(1), index % 10


def loader_of(kind: str, data: Crops) -> DataLoader[Any]:
    """The loader of one version."""
    shape = data.shape
    if kind in ("share", "DataParallel"):
        make = shared_loader if kind == "share" else DataLoader
        made: DataLoader[Any] = make(data, batch_size=shape.batch, shuffle=True, num_workers=shape.workers)
        return made
    world = dist.get_world_size()
    sampler: DistributedSampler[Any] = DistributedSampler(data)
    workers = -(-shape.workers // world)
    return DataLoader(data, batch_size=shape.batch // world, sampler=sampler, num_workers=workers)


def shared_loader(*args: Any, **kwargs: Any) -> DataLoader[Any]:
    """What conversions have in a DataLoader's place."""
    shared: DataLoader[Any] = Rank0Loader(*args, **kwargs)
    return shared


def processor_seconds() -> float:
    """Of this process and of those that it has started and that have ended."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, whose))


def run_epoch(loader: DataLoader[Any], together: bool) -> dict[str, float]:
    """One epoch on one rank."""
    first = 0.0
    if together:
        dist.barrier()
    begin, used = time.perf_counter(), processor_seconds()
    has_whole = isinstance(loader, Rank0Loader)  # as ranks' models get it: they take their rows
    for images, _ in loader:
        first = first or time.perf_counter() - begin
        own = images.chunk(dist.get_world_size())[dist.get_rank()] if has_whole else images
        own.to("cpu").flatten(1).mean(1)
    wall = time.perf_counter() - begin
    return {"wall": wall, "first": first, "processor": processor_seconds() - used}


def run_rank(kind: str, shape: str) -> None:
    """What one process of a run does; its epochs go to the folder COUNTS."""
    torch.set_num_threads(1)
    rank, together = os.environ.get("RANK", "0"), kind != "DataParallel"
    if kind == "share":
        init_distributed()
    elif together:
        dist.init_process_group("gloo")
    loader = loader_of(kind, Crops(SHAPES[shape]))
    epochs = [run_epoch(loader, together) for _ in range(EPOCHS)]
    Path(os.environ["COUNTS"], rank).write_text(json.dumps(epochs), encoding="utf-8")
    if kind == "port":
        dist.destroy_process_group()


def run(kind: str, shape: str, world: int) -> list[dict[str, float]]:
    """The epochs of one run of one version, all ranks together."""
    start = [] if kind == "DataParallel" else ["-m", "torch.distributed.run", "--standalone"]
    start += [f"--nproc-per-node={world}"] if start else []
    with tempfile.TemporaryDirectory(prefix="loading-") as counts:
        command = [sys.executable, *start, __file__, shape, "--as", kind]
        environment = {**os.environ, "COUNTS": counts, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        ranks = [json.loads(file.read_text()) for file in Path(counts).iterdir()]
    if ended.returncode or not ranks:
        raise RuntimeError(f"{kind} of {shape} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    join: dict[str, Callable[[Iterable[float]], float]] = {"wall": max, "first": max, "processor": sum}
    return [
        {name: join[name](one[name] for one in epoch) for name in join} for epoch in zip(*ranks, strict=True)
    ][1:]


def compare(shape: str, world: int, rounds: int) -> str:
    """The rows of the table for one shape."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            found[kind] += run(kind, shape, world)
    lines = []
    for kind in KINDS:
        cells = [shape, kind]
        for name, beside in (("wall", "port"), ("first", "port"), ("processor", "DataParallel")):
            for choose in (statistics.median, min):
                own, others = (choose([epoch[name] for epoch in found[one]]) for one in (kind, beside))
                cells.append(f"{own:.3f} ({own / others:.2f})")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


COLUMNS: tuple[str, ...] = (
    "shape",
    "loader",
    "epoch (ratio to the port)",
    "quickest",
    "first batch (to the port)",
    "quickest",
)
COLUMNS += ("processor (to DataParallel)", "least")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", default=[*SHAPES])
    parser.add_argument("-n", type=int, default=2, help="ranks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--as", dest="kind", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        run_rank(options.kind, options.shapes[0])
        return
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    for shape in options.shapes:
        print(compare(shape, options.n, options.rounds), flush=True)
    print("load of the machine:", *(f"{one:.1f}" for one in os.getloadavg()))


if __name__ == "__main__":
    main()
