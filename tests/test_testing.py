"""`dp2ddp.testing`: what passes, what a failing assertion shows, what cannot be judged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dp2ddp.errors import HazardError, OptionError, RunError
from dp2ddp.runtime.process.server import Server
from dp2ddp.testing import assert_trains_the_same
from tests.cli.forked import fork_trials
from tests.ranks import run_program

TRAIN = """\
import sys, torch
from torch import nn

torch.manual_seed(0)
model = nn.DataParallel(nn.Linear(3, 2)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
if len(sys.argv) > 1:
    saved = torch.load(sys.argv[1])
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 3).cuda()).pow(2).mean()
    loss.backward()
    optimizer.step()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
"""
PORT = """\
import os, sys, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(3, 2).cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
if len(sys.argv) > 1:
    saved = torch.load(sys.argv[1], map_location=f"cuda:{rank}")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 3).chunk(2)[rank].cuda()).pow(2).mean()
    loss.backward()
    optimizer.step()
if rank == 0:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
dist.destroy_process_group()
"""
# what many scripts do: a checkpoint without `module.`, and whatever does not fit is left out
LENIENT = PORT.replace(
    'load_state_dict(saved["model"])', 'module.load_state_dict(saved["model"], strict=False)'
)


@pytest.fixture
def forked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of the session's one server, and none of torchrun: a third of the time."""
    fork_trials(monkeypatch, server)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "train_ddp.py").write_text(PORT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save_checkpoint(folder: Path, server: Server) -> None:
    """In a process of its own, as a run before would have: with the names that DataParallel gives."""
    (folder / "before.py").write_text(
        "import torch\nfrom torch import nn\nmodel = nn.DataParallel(nn.Linear(3, 2))\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)\n"
        "model(torch.ones(1, 3)).sum().backward()\noptimizer.step()\n"
        "torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, 'ckpt.pt')"
    )
    run_program(server, folder, "before.py").check_returncode()
    (folder / "before.py").unlink()


def test_importing_it_loads_neither_torch_nor_pytest() -> None:
    code = "import sys, dp2ddp.testing\nassert not {'torch', 'pytest', 'numpy', 'rich'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_script_that_cannot_be_converted_raises_and_shows_why(folder: Path) -> None:
    (folder / "train.py").write_text(
        "import torch\nfrom encoding.parallel import DataParallelModel\nDataParallelModel(net)\n"
    )
    with pytest.raises(HazardError, match=r"train.py:3"):
        assert_trains_the_same("train.py")


@pytest.mark.torchrun
@pytest.mark.slow
def test_a_run_goes_on_from_a_checkpoint_on_both_sides(folder: Path, server: Server) -> None:
    save_checkpoint(folder, server)
    report = assert_trains_the_same(
        "train.py", converted="train_ddp.py", devices=2, arguments=["ckpt.pt"], steps=5
    )
    (verdict,) = report.verdicts
    assert verdict.same
    assert (verdict.world, verdict.float64.rank_steps) == (2, (5, 5))
    assert sorted(path.name for path in folder.iterdir()) == ["ckpt.pt", "train.py", "train_ddp.py"]


@pytest.mark.torchrun
@pytest.mark.usefixtures("forked")
def test_a_checkpoint_that_one_side_does_not_take_is_found_at_the_start(folder: Path, server: Server) -> None:
    save_checkpoint(folder, server)
    (folder / "train_ddp.py").write_text(LENIENT)
    with pytest.raises(AssertionError, match="DIFFERENT train_ddp.py") as raised:
        assert_trains_the_same(
            "train.py", converted="train_ddp.py", arguments=["ckpt.pt"], only_gradients=True
        )
    assert re.search(
        r"initial state (weight|bias) at step 0", str(raised.value)
    )  # without a seed: whichever is further
    # five numbers do not tell a checkpoint from another seed
    assert "load the same weights" in str(raised.value)


@pytest.mark.torchrun
@pytest.mark.usefixtures("forked")
def test_gradients_alone_may_be_judged(folder: Path) -> None:
    (folder / "train_ddp.py").write_text(PORT + "print('rank', rank, 'is done')\n")
    report = assert_trains_the_same("train.py", converted="train_ddp.py", only_gradients=True)
    (verdict,) = report.verdicts
    assert verdict.printing_ranks == (1,)  # shown, not judged
    assert not verdict.stdout.same


@pytest.mark.torchrun
@pytest.mark.usefixtures("forked")
def test_a_script_without_a_step_has_no_gradients_to_judge(folder: Path) -> None:
    for name in ("train.py", "train_ddp.py"):
        (folder / name).write_text("print('no step')\n")
    with pytest.raises(AssertionError, match="takes no optimizer step"):
        assert_trains_the_same("train.py", converted="train_ddp.py", only_gradients=True)


@pytest.mark.torchrun
@pytest.mark.usefixtures("forked")
def test_a_port_that_fails_is_no_difference(folder: Path) -> None:
    (folder / "train_ddp.py").write_text("raise ValueError('no data')\n")
    with pytest.raises(RunError, match="failed in ddp mode on rank . of 2: ValueError: no data"):
        assert_trains_the_same("train.py", converted="train_ddp.py")


def test_options_of_a_version_of_ones_own_need_one() -> None:
    with pytest.raises(ValueError, match="--aligned needs --converted"):
        assert_trains_the_same("train.py", aligned=True)


@pytest.mark.parametrize("devices", [0, -1, (2, 0)])
def test_no_device_is_not_as_many_as_the_script_names(tmp_path: Path, devices: int | tuple[int, ...]) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    with pytest.raises(OptionError, match="numbers of devices from 1 to 1024"):
        assert_trains_the_same(tmp_path / "train.py", devices=devices)
