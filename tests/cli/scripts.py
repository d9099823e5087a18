"""Scripts for the tests of `run` and `verify`, and how to start the command line."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

# 11 rows in batches of 4: the last has 3; on 4 devices a rank has none of them
TRAIN = """
import argparse
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()
torch.manual_seed(0)
data = TensorDataset(torch.randn(11, 3), torch.randn(11, 2))
loader = DataLoader(data, batch_size=4, shuffle=True)
model = nn.DataParallel(nn.Linear(3, 2).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss", loss.item())
torch.save(model.state_dict(), "last.pt")
"""
CRASH = "import torch.nn as nn\n\ndef train():\n    raise ValueError('no data')\n\nnet = nn.DataParallel\ntrain()\n"


def python(folder: Path, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Python in a folder to its end, on one thread: what it said; `options` are those of subprocess.run."""
    command = [sys.executable, *map(str, arguments)]
    settings = {"env": variables(), "timeout": 300, "check": False, **options}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, **settings)


def dp2ddp(folder: Path, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command line in a folder."""
    return python(folder, "-m", "dp2ddp", *arguments, **options)


def variables() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def like_anybody() -> None:
    """Permissions hold for root as well, before an exec: CAP_DAC_OVERRIDE and _READ_SEARCH are lost with it."""
    for capability in (1, 2) if os.geteuid() == 0 else ():
        ctypes.CDLL(None).prctl(24, capability)  # PR_CAPBSET_DROP


def script(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path
