"""Scripts whose library wraps the model by itself are verified as they are: under python, and under torchrun."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dp2ddp import verify
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.errors import RunError
from dp2ddp.options import VerifyOptions
from dp2ddp.progress import SILENT
from dp2ddp.runtime.process.server import Server
from dp2ddp.trial.subject import Subject, subject_of
from dp2ddp.trial.trial import run_trial
from tests.cli.forked import fork_trials

TRAINER = """
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return ROWS
    def __getitem__(self, at):
        return {"x": torch.arange(3.0) * (at + 1) / 10, "labels": torch.tensor(at % 2)}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.25), nn.Linear(5, 2))
    def forward(self, x, labels):
        scores = self.layers(x)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}

torch.manual_seed(1)
args = TrainingArguments("out", report_to="none", per_device_train_batch_size=4, per_device_eval_batch_size=2,
                         num_train_epochs=2, logging_steps=1, save_steps=2, eval_strategy="epoch")
trainer = Trainer(Net(), args, train_dataset=Rows(), eval_dataset=Rows())
trainer.train()
"""


def subject(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Subject:
    monkeypatch.chdir(folder)
    Path("train.py").write_text(text)
    return subject_of(VerifyOptions(script=Path("train.py"), timeout=500.0))


def test_a_script_that_does_nothing_beside_its_trainer_is_its_own_ddp_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = subject(tmp_path, monkeypatch, TRAINER.replace("ROWS", "16"))
    assert (found.port, found.version.data.decode()) == (found.script, TRAINER.replace("ROWS", "16"))
    assert "transformers.Trainer wraps the model by itself" in found.remarks[0]
    assert "filled up" in found.remarks[1]
    assert found.rows_by_rank


def test_what_a_script_does_beside_it_is_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = subject(tmp_path, monkeypatch, TRAINER + "print('done')\n")
    assert found.port is None
    assert b"join_ranks()" in found.version.data
    assert found.rows_by_rank


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n" + TRAINER, "one GPU is visible"),
        (
            'from lightning.fabric import Fabric\nFabric(strategy="dp")\n',
            'write in its place: strategy="ddp"',
        ),
    ],
)
def test_what_does_not_train_on_ranks_as_it_is_is_an_error_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    with pytest.raises(RunError, match="nothing to convert, so nothing to compare") as error:
        subject(tmp_path, monkeypatch, text)
    assert words in str(error.value)


def verdict(folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch, rows: int) -> Verdict:
    """In float64; its ranks are forked, not torchrun's."""
    pytest.importorskip("transformers")
    code, scratch = folder / "code", folder / "scratch"
    code.mkdir()
    scratch.mkdir()
    found = subject(code, monkeypatch, TRAINER.replace("ROWS", str(rows)))
    assert found.torchrun
    return run_trial(replace(found, torchrun=False, float32=False), 2, server, scratch, SILENT)


def test_full_batches_train_the_same_and_the_files_of_the_library_s_start_do_not_decide(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verdict(tmp_path, server, monkeypatch, rows=16)
    assert found.files
    assert found.same, found
    assert found.float64.steps == 4
    assert found.files.files >= 10  # without random states
    assert any("rng_state.pth" in each and "train_batch_size" in each for each in found.remarks)


@pytest.mark.slow  # tests/hidden has the gradients of such an epoch, from its last step on
def test_a_short_last_batch_is_filled_up_and_trains_otherwise(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verdict(tmp_path, server, monkeypatch, rows=13)
    assert not found.same
    first = found.float64.first
    assert (first.step, first.kind) == (1, "gradient before clipping")


OWN_OPTIMIZER = """
import collections
import torch

class Optimizer:
    def __init__(self, params, lr):
        self.param_groups = [{"params": list(params), "lr": lr}]
        self.state = collections.defaultdict(dict)

    def step(self, closure=None):
        for each in self.param_groups[0]["params"]:
            each.data.add_(each.grad.data, alpha=-self.param_groups[0]["lr"])

    def zero_grad(self):
        for each in self.param_groups[0]["params"]:
            each.grad = None
"""
FASTAI_LIKE = """
import torch
from torch import nn
from fastai.optimizer import Optimizer

torch.manual_seed(1)
net = nn.DataParallel(nn.Linear(3, 2)).cuda()
optimizer = Optimizer(net.parameters(), 0.1)
for step in range(3):
    optimizer.zero_grad()
    net(torch.randn(4, 3).cuda()).square().mean().backward()
    optimizer.step()
"""
PORT_THAT_SUMS_ONCE_TOO_OFTEN = """
import os
import torch
import torch.distributed as dist
from torch import nn
from fastai.optimizer import Optimizer

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
net = nn.parallel.DistributedDataParallel(nn.Linear(3, 2))
optimizer = Optimizer(net.parameters(), 0.1)
for step in range(3):
    optimizer.zero_grad()
    net(torch.randn(4, 3).chunk(world)[rank]).square().mean().backward()
    if step == 1:
        for each in net.parameters():
            each.grad *= 2
    optimizer.step()
dist.destroy_process_group()
"""


def test_steps_of_an_optimizer_that_is_not_torch_s_are_compared(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fork_trials(monkeypatch, server)
    (tmp_path / "fastai").mkdir()
    Path("fastai", "__init__.py").touch()
    Path("fastai", "optimizer.py").write_text(OWN_OPTIMIZER)
    Path("train.py").write_text(FASTAI_LIKE)
    Path("port.py").write_text(PORT_THAT_SUMS_ONCE_TOO_OFTEN)
    (found,) = verify("train.py", converted="port.py", devices=2, timeout=500.0).verdicts
    assert found.float64.steps == 3
    first = found.float64.first
    assert (first.step, first.kind) == (1, "gradient")
