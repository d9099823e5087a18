"""Faults of published ports, each told as what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.errors import RunError
from dp2ddp.runtime.process.server import Server
from tests.cli.scripts import script
from tests.verdicts import Document, forked_verdicts

HEAD = """
import os
import time
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset
"""
PICTURES = """
class Pictures(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, index):
        picture = torch.randn(6, generator=torch.Generator().manual_seed(index))
        return picture + 0.1 * torch.randn(6), torch.tensor([index / 60.0])

data = Pictures()
"""
DRAWN = """
data = TensorDataset(torch.randn(24, 6), torch.zeros(24, 1))
torch.manual_seed(0)
"""
KNOWN = """
torch.manual_seed(0)
data = TensorDataset(torch.randn(24, 6), torch.randn(24, 1))
"""
TRAIN = """
torch.manual_seed(0)
loader = DataLoader(data, batch_size=BATCH, shuffle=SHUFFLE, drop_last=True)
model = nn.DataParallel(nn.Linear(6, 1).cuda())
"""
PORT = """
torch.manual_seed(0)
loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data, shuffle=SHUFFLE), drop_last=True)
model = nn.parallel.DistributedDataParallel(nn.Linear(6, 1).cuda(), device_ids=[rank])
"""
JOIN = """
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
"""
LOOP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3 * len(loader))
steps = 0
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
        scheduler.step()
        steps += 1
        if steps == STEPS:
            raise SystemExit
    SAVE
"""


def written(
    folder: Path, data: str, batches: tuple[int, int], shuffle: bool, steps: int, save: str = ""
) -> tuple[Path, Path]:
    loop = LOOP.replace("STEPS", str(steps)).replace("SAVE", save)
    texts = [HEAD + data + TRAIN + loop, HEAD + JOIN + data + PORT + loop]
    texts = [
        text.replace("BATCH", str(batch)).replace("SHUFFLE", str(shuffle))
        for text, batch in zip(texts, batches, strict=True)
    ]
    return script(folder, texts[0]), script(folder, texts[1], "train_ddp.py")


def causes(server: Server, pair: tuple[Path, Path]) -> list[Document]:
    said = forked_verdicts(server, *pair, worlds=[2])[0]
    assert not said["same"]
    found: list[Document] = said["causes"]
    return found


@pytest.mark.torchrun
def test_one_order_in_an_epoch_and_a_half_is_no_lost_sample(server: Server, tmp_path: Path) -> None:
    """Each rank takes 24 of its 30 samples, and 16 of these again: 12 of 60 are left out, always the same."""
    first = causes(server, written(tmp_path, PICTURES, (16, 8), shuffle=True, steps=5))[0]
    assert first["code"] == "same-order-each-epoch"


@pytest.mark.torchrun
def test_data_that_each_rank_draws_are_said_to_be_that_ranks(server: Server, tmp_path: Path) -> None:
    first = causes(server, written(tmp_path, DRAWN, (8, 4), shuffle=False, steps=9))[0]
    assert first["code"] == "other-inputs"
    assert first["evidence"][0].startswith("4 of 8 rows of step 0")
    assert first["evidence"][0].endswith(": on rank 1 alone")


@pytest.mark.torchrun
def test_a_schedule_that_counts_the_ranks_batches_is_told_beside_these(
    server: Server, tmp_path: Path
) -> None:
    found = causes(server, written(tmp_path, KNOWN, (4, 4), shuffle=False, steps=99))
    assert [cause["code"] for cause in found[:2]] == ["batch-size", "shorter-schedule"]
    assert "called 9 times, under DataParallel 18" in found[1]["evidence"][1]


@pytest.mark.torchrun
def test_a_file_that_two_ranks_write_is_told_where_one_cannot_read_it(server: Server, tmp_path: Path) -> None:
    """Half a file, as another rank's torch.save leaves it for a moment."""
    save = 'torch.save(model.state_dict(), "best.pt"); HALF; torch.load("best.pt")'
    pair = written(tmp_path, KNOWN, (8, 4), shuffle=False, steps=99, save=save)
    pair[0].write_text(pair[0].read_text().replace("HALF", "pass"))
    half = 'dist.barrier(); rank or os.truncate("best.pt", 700); dist.barrier()'
    pair[1].write_text(pair[1].read_text().replace("HALF", half))
    with pytest.raises(RunError) as failed:
        forked_verdicts(server, *pair, worlds=[2])
    line = pair[1].read_text().splitlines().index(f"    {save.replace('HALF', half)}") + 1
    assert f"before that: best.pt is written by ranks 0, 1 (train_ddp.py:{line})" in str(failed.value)
    assert "save on rank 0 alone" in str(failed.value.details["advice"])


@pytest.mark.torchrun
def test_a_folder_that_is_printed_is_one_with_both_scripts(server: Server, tmp_path: Path) -> None:
    """The port's name is the original's in what is compared, whichever of the two prints it."""
    save = 'globals().get("rank") or print(sorted(os.listdir(".")))'
    pair = written(tmp_path, KNOWN, (8, 4), shuffle=False, steps=99, save=save)
    assert forked_verdicts(server, *pair, worlds=[2])[0]["stdout"]["same"]
