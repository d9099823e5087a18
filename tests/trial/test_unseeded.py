"""Random numbers without a seed: both versions get the same, and the lines are told; what no seed decides is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dp2ddp.codemod.convert import convert
from dp2ddp.options import VerifyOptions
from dp2ddp.progress import SILENT
from dp2ddp.runtime.process.server import Server
from dp2ddp.source.projects import read_project
from dp2ddp.trial.subject import subject_of
from dp2ddp.trial.trial import run_trial
from tests.cli.scripts import script
from tests.verdicts import Document, forked_verdict, forked_verdicts

HEAD = """
import random
import time
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn

def numbers(shape):
    rng = RNG
    old = np.random.RandomState()
    np.random.RandomState(seed=5)
    random.seed()
    generator = torch.Generator()
    generator.seed()
    drawn = rng.normal(size=shape) + old.rand() + random.random() + random.Random().random()
    return torch.as_tensor(drawn, dtype=torch.float32) + torch.randn(shape, generator=generator)

"""
TRAIN = """
torch.manual_seed(3)
model = nn.DataParallel(nn.Linear(4, 2).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
    if step > 1:
        x = x + numbers((8, 4))
    optimizer.zero_grad()
    model(x.cuda()).pow(2).mean().backward()
    optimizer.step()
"""
PORT = """
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
torch.manual_seed(3)
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2).cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step)).cuda()
    if step > 1:
        noise = numbers((8, 4)).cuda()
        dist.broadcast(noise, 0)
        x = x + noise
    optimizer.zero_grad()
    model(x.chunk(2)[rank]).pow(2).mean().backward()
    optimizer.step()
"""
UNSEEDED, CLOCK = "np.random.default_rng()", "np.random.default_rng(time.monotonic_ns())"


def verdict(server: Server, folder: Path, rng: str, port: str) -> Document:
    head = HEAD.replace("RNG", rng)
    pair = script(folder, head + TRAIN), script(folder, head + port, "train_ddp.py")
    return forked_verdicts(server, *pair, worlds=[2])[0]


@pytest.mark.torchrun
def test_numbers_without_a_seed_are_rank_0s_in_both_and_another_rank_has_its_own(
    tmp_path: Path, server: Server
) -> None:
    said = verdict(server, tmp_path, UNSEEDED, PORT)
    assert said["same"]
    assert said["float64"]["identical"]
    lines = [f"train.py:{number}" for number in (10, 11, 13, 15)]  # of random.Random(), too: line 16
    assert "train.py:12" not in said["unshared"][0]  # it has a seed, though numpy draws one before
    assert [line for line in lines if line not in said["unshared"][0]] == [], said["unshared"]
    own = verdict(server, tmp_path, UNSEEDED, PORT.replace("dist.broadcast(noise, 0)", ""))
    assert own["float64"]["first"]["step"] == 2
    assert own["unsteady"] is None  # DataParallel was run a second time, or need not be


@pytest.mark.torchrun
def test_an_original_that_hangs_on_the_clock_is_never_the_same(tmp_path: Path, server: Server) -> None:
    """Its noise hides any difference: the second run of DataParallel, from which noise is measured, is as far off."""
    said = verdict(server, tmp_path, CLOCK, PORT)
    assert not said["same"]
    assert said["unsteady"]["step"] == 2
    assert [cause["code"] for cause in said["causes"]] == ["dataparallel-unsteady"]


OF_TWENTY = """
import torch
import torch.nn as nn
torch.manual_seed(20)
model = nn.DataParallel(nn.Sequential(nn.Linear(4, 2), nn.Dropout()).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    model(torch.ones(8, 4).cuda()).pow(2).mean().backward()
    optimizer.step()
"""


@pytest.mark.torchrun
def test_a_script_may_set_any_usual_seed(tmp_path: Path, server: Server) -> None:
    """The seed that runs began with was 20: devices that a script seeded with 20 were taken for those of no seed."""
    conversion = convert(read_project(script(tmp_path, OF_TWENTY)))
    compared = forked_verdict(server, conversion, tmp_path)
    assert compared.same
    assert compared.float64.identical


SETS = """
import torch
import torch.distributed as dist
import torch.nn as nn
words = {"the", "cat", "sat", "on", "a", "mat", "dogs", "bark", "moon", "fish", "swim", "one", "two", "three"}
numbers = torch.tensor([float(len(word)) for word in words] + [0.0, 1.0]).reshape(8, 2)
"""
SET_LOOP = """
torch.manual_seed(3)
model = WRAP
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(2):
    optimizer.zero_grad()
    model(ROWS.cuda()).pow(2).mean().backward()
    optimizer.step()
"""


@pytest.mark.torchrun
def test_an_order_of_sets_is_no_random_number(tmp_path: Path, server: Server) -> None:
    """torchrun's ranks have hashes of their own; forked runs, as aligned ones are, do not."""
    join = "dist.init_process_group('nccl')\nrank = dist.get_rank()\ntorch.cuda.set_device(rank)\n"
    wrap = "nn.parallel.DistributedDataParallel(nn.Linear(2, 1).cuda(), device_ids=[rank])"
    first = SETS + SET_LOOP.replace("WRAP", "nn.DataParallel(nn.Linear(2, 1).cuda())").replace(
        "ROWS", "numbers"
    )
    other = SETS + join + SET_LOOP.replace("WRAP", wrap).replace("ROWS", "numbers.chunk(2)[rank]")
    options = VerifyOptions(script=script(tmp_path, first), converted=script(tmp_path, other, "train_ddp.py"))
    subject = replace(subject_of(options), folder=tmp_path, own_hashes=True)
    (tmp_path / "scratch").mkdir()
    said = run_trial(subject, 2, server, tmp_path / "scratch", SILENT)
    assert not said.same
    assert not said.random_only
    assert said.causes[0].code == "order-of-sets"
