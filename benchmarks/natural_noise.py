"""Whether natural noise tells right ports from faulty ones: `python benchmarks/natural_noise.py [steps] [dtype] [W,W]`.

A small net with BatchNorm, SGD and Adam, on 2, 3 and 4 devices: a right port by hand, and three faulty ones. Prints for
each how far it came from DataParallel, beside how far DataParallel comes from itself when it starts an ulp away.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from dp2ddp.comparison.compare import Comparison, compare
from dp2ddp.comparison.tolerance import FLOAT32, FLOAT64
from dp2ddp.runtime.run import watch
from dp2ddp.runtime.server import Server
from dp2ddp.runtime.stage import Mode, Stage
from dp2ddp.trace.records import read_trace

COMMON = """
import os, sys, torch
from torch import nn
import torch.nn.functional as F
steps, kind, fault, late = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
torch.manual_seed(1)
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
    nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
)
data = torch.Generator().manual_seed(2)
batches = [(torch.randn(24, 3, 8, 8, generator=data), torch.randint(5, (24,), generator=data)) for _ in range(steps)]
def optimizer_of(net):
    if kind == "sgd":
        return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    return torch.optim.Adam(net.parameters(), lr=1e-2)
"""
DP = """
net = nn.DataParallel(net.cuda())
optimizer = optimizer_of(net)
for x, y in batches:
    optimizer.zero_grad()
    F.cross_entropy(net(x.cuda()), y.cuda()).backward()
    optimizer.step()
"""
PORT = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
if fault == "syncbn":
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
net = DistributedDataParallel(net.cuda(), device_ids=[rank])
optimizer = optimizer_of(net)
for step, (x, y) in enumerate(batches):
    x, y = x.chunk(world)[rank].cuda(), y.chunk(world)[rank].cuda()
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y, label_smoothing=1e-3 if fault == "smoothing" and step >= late else 0.0)
    (loss * world if fault == "sum" and step >= late else loss).backward()
    optimizer.step()
"""
FAULTS = ("none", "sum", "syncbn", "smoothing")


def main(steps: int, dtype: str, worlds: list[int]) -> None:
    print(f"{steps} steps, {dtype}", end="\n\n")
    print("| optimizer | W | fault | verdict | at step | difference | x noise | noise at the end |")
    print("|---|---|---|---|---|---|---|---|")
    with Server() as server, tempfile.TemporaryDirectory() as scratch:
        for kind in ("sgd", "adam"):
            for world in worlds:
                for fault, found in tried(server, Path(scratch), kind, world, steps, dtype):
                    print(line(kind, world, fault, found), flush=True)


def line(kind: str, world: int, fault: str, found: Comparison) -> str:
    shown = found.first or found.worst
    assert shown is not None
    noise = f"{found.natural.largest:.1e}" if found.natural else "not measured"
    where = f"{shown.step} | {shown.size:.1e} | {shown.noise_ratio:.2g}"
    return f"| {kind} | {world} | {fault} | {'noise' if found.same else 'different'} | {where} | {noise} |"


def tried(
    server: Server, scratch: Path, kind: str, world: int, steps: int, dtype: str
) -> list[tuple[str, Comparison]]:
    def stage(name: str, mode: Mode, code: str, fault: str, nudged: bool = False) -> Stage:
        folder = scratch / f"{kind}-{world}-{name}"
        folder.mkdir()
        (folder / "train.py").write_text(COMMON + code)
        return Stage(
            str(folder / "train.py"), mode, world, str(folder), str(folder / "run"), "train.py",
            arguments=(str(steps), kind, fault, "0"), trace=str(folder / "trace"), dtype=dtype, seed=20, real=False,
            nudged=nudged, rank_order=dtype == "float32", capture=True,
        )  # fmt: skip

    stages = [stage("dp", "dp", DP, "none"), stage("nudged", "dp", DP, "none", nudged=True)]
    stages += [stage(fault, "ddp", PORT, fault) for fault in FAULTS]
    runs = [watch([server.start(each)], 120)[0] for each in stages]
    assert all(run.code == 0 for run in runs), runs
    traces = [[read_trace(Path(str(each.trace)), rank) for rank in each.ranks] for each in stages]
    tolerance = FLOAT32 if dtype == "float32" else FLOAT64
    return [
        (fault, compare(traces[0][0], ranks, tolerance, traces[1][0], port=True))
        for fault, ranks in zip(FAULTS, traces[2:], strict=True)
    ]


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        int(given[0]) if given else 200,
        given[1] if len(given) > 1 else "float32",
        [int(world) for world in (given[2] if len(given) > 2 else "2,3,4").split(",")],
    )
