"""A long run in which rounding grows so far that a fault could hide: each step is judged by itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dp2ddp.comparison.verdict import Verdict
from dp2ddp.options import VerifyOptions
from dp2ddp.progress import SILENT
from dp2ddp.runtime.process.run import Run, watch
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.stage import Mode
from dp2ddp.trial.subject import subject_of
from dp2ddp.trial.trial import run_trial
from tests.ranks import stage_of

pytestmark = pytest.mark.torchrun

STEPS, LATE = 40, 34
COMMON = f"""
import sys, torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(1)
layers = [nn.Linear(6, 16)]
for _ in range(3):
    layers += [nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 16)]
net = nn.Sequential(*layers, nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3))
data = torch.Generator().manual_seed(2)
batches = [(torch.randn(12, 6, generator=data), torch.randint(3, (12,), generator=data)) for _ in range({STEPS})]
late = {LATE}
def optimizer_of(net):
    return torch.optim.Adam(net.parameters(), lr=0.6)
"""
DP = """
net = nn.DataParallel(net.cuda())
optimizer = optimizer_of(net)
for x, y in batches:
    optimizer.zero_grad()
    F.cross_entropy(net(x.cuda()), y.cuda()).backward()
    optimizer.step()
print("trained", len(batches))
"""
PORT = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
net = DistributedDataParallel(net.cuda(), device_ids=[rank])
optimizer = optimizer_of(net)
for step, (x, y) in enumerate(batches):
    x, y = x.chunk(world)[rank].cuda(), y.chunk(world)[rank].cuda()
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    if FAULT and step == late:
        loss = loss * 1.001
    loss.backward()
    optimizer.step()
if rank == 0:
    print("trained", len(batches))
"""


def verdict(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch, fault: bool) -> Verdict:
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text(COMMON + DP)
    (folder / "code" / "port.py").write_text(COMMON + f"FAULT = {fault}" + PORT)
    monkeypatch.chdir(folder / "code")
    subject = subject_of(VerifyOptions(script=Path("train.py"), converted=Path("port.py")))
    (folder / "scratch").mkdir()
    return run_trial(
        dataclasses.replace(subject, torchrun=False, float32=False), 3, server, folder / "scratch", SILENT
    )


def test_a_small_fault_late_in_a_chaotic_run_is_found_at_its_step(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verdict(server, tmp_path, monkeypatch, fault=True)
    assert found.lockstep
    assert any("in lockstep" in remark for remark in found.remarks)
    assert (found.float64.first.kind, found.float64.first.step) == ("gradient", LATE)
    assert found.float64.first.size == pytest.approx(1e-3, rel=0.1)
    assert list((tmp_path / "scratch" / "lockstep-3").glob("step-*"))  # the last few
    assert len(list((tmp_path / "scratch" / "lockstep-3").glob("step-*"))) <= 6


@pytest.mark.slow
def test_a_right_port_is_the_same_however_chaotic_the_run(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verdict(server, tmp_path, monkeypatch, fault=False)
    assert found.lockstep
    assert found.same
    assert not any(
        "outside of the folder" in remark for remark in found.remarks
    )  # states are no files of the script's
    assert found.float64.noise_ratio is None or found.float64.noise_ratio < 1000
    assert found.float64.hides_from is None


def test_a_leader_that_ends_without_a_word_is_not_waited_for(server: Server, tmp_path: Path) -> None:
    """os._exit calls no atexit; a kill, nothing at all."""
    left = run_in_lockstep(server, tmp_path / "dp", "dp", "import os; os.kill(os.getpid(), 9)")
    assert left.codes == (-9,)
    assert (tmp_path / "states").is_dir()
    step = "import torch\nnet = torch.nn.Linear(1, 1)\ntorch.optim.SGD(net.parameters(), 1.0).step()\nprint('stepped')"
    right = run_in_lockstep(server, tmp_path / "ddp", "ddp", step)
    assert (right.failure, right.output(1)) == (None, "stepped\n")


def run_in_lockstep(server: Server, folder: Path, mode: Mode, code: str) -> Run:
    folder.mkdir()
    (folder / "train.py").write_text(code)
    states = str(folder.parent / "states")
    stage = stage_of(folder / "train.py", mode, trace=str(folder / "trace"), lockstep=states)
    return watch([server.start(stage)], timeout=20)[0]
