"""What libraries print of times and speeds, as installed, is no difference; a loss beside it is one.

Each trains the same little model twice, the second time from slower data.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from dp2ddp.comparison.output_comparison import compare_text
from dp2ddp.comparison.tolerance import FLOAT64


class _Rows(Dataset[Any]):
    def __init__(self, seconds: float, named: bool = False) -> None:
        self.seconds, self.named = seconds, named

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        row, label = torch.arange(4.0) * index / 10, torch.tensor(index % 2)
        return {"x": row, "labels": label} if self.named else (row, label)


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        scores = self.layer(x)
        return scores if labels is None else {"loss": nn.functional.cross_entropy(scores, labels)}


def _transformers(seconds: float, folder: Path) -> None:
    library = pytest.importorskip("transformers")
    arguments = library.TrainingArguments(
        output_dir=str(folder), report_to="none", num_train_epochs=2, per_device_train_batch_size=4, logging_steps=1,
        eval_strategy="epoch", save_strategy="no", disable_tqdm=True, skip_memory_metrics=False, use_cpu=True,
        include_num_input_tokens_seen=True, prediction_loss_only=True,
    )  # fmt: skip
    rows = _Rows(seconds, named=True)
    trainer = library.Trainer(model=_Net(), args=arguments, train_dataset=rows, eval_dataset=rows)
    result = trainer.train()
    print(result)
    print(trainer.evaluate())
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)
    print((folder / "train_results.json").read_text())


def _ignite(seconds: float, folder: Path) -> None:
    engine = pytest.importorskip("ignite.engine")
    net = _Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    trainer = engine.create_supervised_trainer(net, optimizer, nn.functional.cross_entropy)
    trainer.logger = pytest.importorskip("ignite.utils").setup_logger(str(folder), stream=sys.stdout)
    bar = pytest.importorskip("ignite.handlers").ProgressBar(persist=True, file=sys.stdout)
    bar.attach(trainer, output_transform=lambda loss: {"loss": loss})
    trainer.run(DataLoader(_Rows(seconds), 4), 2)
    print(trainer.state.times)


def _tqdm(seconds: float, folder: Path) -> None:
    bar = pytest.importorskip("tqdm").tqdm(range(9), file=sys.stdout, mininterval=0.01)
    for step in bar:
        time.sleep(seconds)
        bar.set_postfix(loss=0.5 + step)


@pytest.mark.parametrize("train", [_transformers, _ignite, _tqdm])
def test_times_are_no_results(
    train: Callable[[float, Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for seconds in (0.0, 0.02):
        (tmp_path / "out").mkdir(exist_ok=True)
        train(seconds, tmp_path / "out")
        printed.append(capsys.readouterr().out)
    compared = compare_text(printed[0], printed[1], FLOAT64)
    assert compared.same, (compared.first, *compared.others)
    assert printed[0] != printed[1]
    other = re.sub(r"(?<=loss)(\W+)\d\.(?=[^\r]*$)", r"\g<1>7.", printed[1], count=1, flags=re.MULTILINE)
    assert other != printed[1]
    assert not compare_text(printed[0], other, FLOAT64).same
