"""A port that shuffles by itself and is seeded apart is told from one that does something else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dp2ddp.comparison.verdict import Verdict
from dp2ddp.runtime.process.server import Server
from tests.cli.scripts import script
from tests.verdicts import verdict_of_port

HEAD = """
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Data(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        torch.manual_seed(index)
        return torch.randn(6), torch.randn(2)


def net():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 2))


"""
TRAIN = (
    HEAD
    + """
torch.manual_seed(3)
model = nn.DataParallel(net().cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Data(), batch_size=8, shuffle=True)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
"""
)
PORT = (
    HEAD
    + """
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(3 + rank)
model = nn.parallel.DistributedDataParallel(net().cuda(), device_ids=[rank], broadcast_buffers=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = Data()
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=8 // world, sampler=sampler)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
dist.destroy_process_group()
"""
)

pytestmark = pytest.mark.torchrun


Judged = Callable[..., Verdict]


@pytest.fixture
def judged(tmp_path: Path, server: Server) -> Judged:
    """judged(port, train=TRAIN, ...): what is said of a port on two ranks."""

    def verdict(port: str, train: str = TRAIN, **options: Any) -> Verdict:
        return verdict_of_port(server, script(tmp_path, train), script(tmp_path, port, "port.py"), **options)

    return verdict


def test_other_random_numbers_and_nothing_else(judged: Judged) -> None:
    verdict = judged(PORT)
    assert not verdict.same
    assert verdict.random_only
    assert verdict.aligned.comparison.steps == 6


@pytest.mark.parametrize(
    ("number", "same"), [("next(model.parameters()).detach().sum()", True), ("y.sum()", False)]
)
def test_what_is_printed_is_compared_with_the_same_random_numbers_too(
    judged: Judged, number: str, same: bool
) -> None:
    """Lines that differ by the numbers drawn are the same then; what rank 0 alone has stays another number."""
    line = f"print(f'{{{number}:.9f}}')\n"
    port = PORT.replace("dist.destroy", f"if rank == 0:\n    {line}dist.destroy")
    verdict = judged(port, train=TRAIN + line)
    assert verdict.random_only
    assert not verdict.stdout.same
    assert verdict.aligned.prints_the_same is same


def test_it_can_be_judged_with_the_same_random_numbers(judged: Judged) -> None:
    verdict = judged(PORT, aligned=True)
    assert verdict.same
    assert verdict.float64.rank_steps == (6, 6)


def test_another_seed_is_no_fault_behind_aligned_runs(judged: Judged) -> None:
    port = PORT.replace("torch.manual_seed(3 + rank)", "torch.manual_seed(99 + rank)")
    verdict = judged(port, aligned=True)
    assert verdict.same
    assert "were given DataParallel's" in verdict.remarks[0]


HIDDEN = {
    "each rank shuffles by itself": ("shuffle=True)", "shuffle=True, seed=rank)", "the ranks leave out"),
    "another initialisation": (
        "model = nn.par",
        "nn.Linear.reset_parameters = lambda self: [nn.init.normal_(each, std=3.0) for each in self.parameters()]\n"
        "model = nn.par",
        "initial weights are no other draw of DataParallel's distribution: 0.weight",
    ),
    "weights that are not loaded": (
        "torch.manual_seed(3 + rank)",
        "torch.manual_seed(99 + rank)\nnn.BatchNorm1d.reset_parameters = lambda self: nn.init.uniform_(self.weight)",
        "initial weights are no other draw of DataParallel's distribution: 1.weight",
    ),
}


@pytest.mark.parametrize("fault", HIDDEN)
def test_what_aligning_would_hide_is_not_the_same(judged: Judged, fault: str) -> None:
    old, new, words = HIDDEN[fault]
    verdict = judged(PORT.replace(old, new), aligned=True)
    assert not verdict.same
    assert any(words in each for each in verdict.hidden), (verdict.hidden, verdict.float64.first)


FAULTS = {
    "set_epoch is forgotten": ("    sampler.set_epoch(epoch)\n", "", "same-order-each-epoch"),
    "each rank shuffles by itself": ("shuffle=True)", "shuffle=True, seed=rank)", "repeated-rows"),
    "no sampler": ("sampler=sampler", "shuffle=True", "repeated-rows"),
    "a sum instead of a mean": (
        "y.cuda()).backward",
        "y.cuda(), reduction='sum').backward",
        "gradient-scale",
    ),
    "batches twice as large": ("8 // world", "8", "batch-size"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_no_matter_of_luck(judged: Judged, fault: str) -> None:
    old, new, code = FAULTS[fault]
    assert old in PORT
    verdict = judged(PORT.replace(old, new))
    assert not verdict.same
    assert not verdict.random_only
    assert verdict.causes[0].code == code


def test_gradients_that_travel_as_halves(judged: Judged) -> None:
    """In float64 the hook sends doubles: that it asks for less is seen."""
    hook = (
        "from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook\n"
        "model.register_comm_hook(None, bf16_compress_hook)\noptimizer ="
    )
    verdict = judged(PORT.replace("optimizer =", hook, 1), aligned=True)
    assert not verdict.same
    assert verdict.causes[0].code == "half-by-hand"
    assert verdict.causes[0].evidence[0].startswith("gradients cast to bfloat16 under DDP only, at ")


def test_what_only_float32_shows(judged: Judged) -> None:
    """A legacy type as an object is torch's own in float64, and no cast that could be seen."""
    hook = (
        "for each in model.parameters():\n    each.register_hook(lambda g: g.type(torch.cuda.BFloat16Tensor).float())\n"
        "optimizer ="
    )
    port = PORT.replace("optimizer =", hook, 1)
    verdict = judged(port, aligned=True, float32=True)
    assert verdict.single_only
    assert not verdict.same
