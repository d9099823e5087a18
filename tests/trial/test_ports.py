"""A version of the user's own runs where it lies, with its own modules and its own arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dp2ddp.runtime.process.server import Server
from tests.cli.forked import forked
from tests.cli.scripts import dp2ddp, script

PARTS = "import torch.nn as nn\n\n\ndef net():\n    return nn.Linear(3, 2)\n"
# One file for both ways to train, as many have it: a flag decides.
TRAIN = """
import argparse
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from parts import net

parser = argparse.ArgumentParser()
parser.add_argument("--distributed", action="store_true")
parser.add_argument("--batch-size", type=int, default=8)
args = parser.parse_args()
torch.manual_seed(0)
x, y = torch.randn(32, 3), torch.randn(32, 2)
rank, world = 0, 1
if args.distributed:
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = nn.parallel.DistributedDataParallel(net().cuda(), device_ids=[rank])
else:
    model = nn.DataParallel(net().cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
whole = args.batch_size * world
for start in range(0, 32, whole):
    mine = slice(start + rank * args.batch_size, start + (rank + 1) * args.batch_size)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x[mine].cuda()), y[mine].cuda()).backward()
    optimizer.step()
if rank == 0:
    print("trained")
if args.distributed:
    dist.destroy_process_group()
"""

pytestmark = pytest.mark.torchrun


def test_the_same_file_with_another_flag(tmp_path: Path, server: Server) -> None:
    script(tmp_path, TRAIN)
    script(tmp_path, PARTS, "parts.py")
    own = "--distributed --batch-size 4"
    options = ("--converted", "train.py", "--converted-arguments", own, "--json")
    result = forked(server, tmp_path, "verify", "train.py", *options)
    single = json.loads(result.stdout)["verdicts"][0]["float32"]
    assert (single["rank_steps"], single["identical_steps"]) == ([4, 4], 4)


def test_a_port_in_a_folder_of_its_own_imports_its_own_modules(tmp_path: Path, server: Server) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        script(tmp_path / name, TRAIN)
        script(tmp_path / name, PARTS, "parts.py")
    script(tmp_path / "new", PARTS.replace("Linear(3, 2)", "Linear(3, 2, bias=False)"), "parts.py")
    own = "--distributed --batch-size 4"
    port = ("--converted", "../new/train.py", "--converted-arguments", own)
    result = forked(server, tmp_path / "old", "verify", "train.py", *port)
    assert result.exit_code == 1, result.output
    assert result.stdout.startswith("DIFFERENT ../new/train.py parts from train.py under DataParallel")


def test_arguments_of_a_converted_script_need_one(tmp_path: Path) -> None:
    script(tmp_path, TRAIN)
    result = dp2ddp(tmp_path, "verify", "train.py", "--converted-arguments", "--fast")
    assert result.returncode == 2
    assert "--converted-arguments needs --converted" in result.stderr


def test_a_quote_that_is_not_closed_is_told(tmp_path: Path) -> None:
    result = dp2ddp(tmp_path, "verify", "train.py", "--converted", "port.py", "--converted-arguments", "'a")
    assert result.returncode == 2
    assert "--converted-arguments': \"'a\": no closing quotation" in result.stderr
