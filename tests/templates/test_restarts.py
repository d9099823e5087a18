"""torchrun --max-restarts: ranks that are started again train on from the script's own checkpoint."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ranks import TORCHRUN, end_all

pytestmark = pytest.mark.torchrun

SCRIPT = """
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

from dp2ddp.templates.ddp import ExactDDP
from dp2ddp.templates.process import join_process_group
from dp2ddp.templates.rank_zero_output import save_on_rank_zero

RANK, VICTIMS = os.environ["RANK"], sys.argv[1:]
join_process_group()
torch.manual_seed(0)
net = ExactDDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
x, y = torch.randn(24, 8), torch.randint(0, 3, (24,))
start = 0
if Path("last.pt").exists():
    state = torch.load("last.pt")
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    start = state["epoch"] + 1
    print("from epoch", start)
for epoch in range(start, 4):
    torch.manual_seed(epoch)
    for rows in torch.randperm(24).split(8):
        marker = Path(f"killed in {epoch}")
        if epoch > 1 and VICTIMS[epoch - 2 :][:1] == [RANK] and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    save_on_rank_zero({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pt")
print(sum(p.double().sum().item() for p in net.parameters()))
"""


def trained(folder: Path, *victims: str) -> list[str]:
    """What a run printed that loses one rank in its third epoch, and one in its fourth."""
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(SCRIPT)
    run = subprocess.run(
        [*TORCHRUN, "2", "--max-restarts", "2", str(script), *victims],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert end_all(script) == 0
    assert {path.name for path in folder.iterdir()} - {f"killed in {2 + i}" for i in range(len(victims))} == {
        "train.py",
        "last.pt",
    }
    return run.stdout.split("\n")[:-1]


@pytest.mark.slow
def test_a_killed_rank_is_started_again_and_the_weights_end_as_without_it(tmp_path: Path) -> None:
    *_, weights = trained(tmp_path / "whole")
    assert trained(tmp_path / "twice", "1", "0") == ["from epoch 2", "from epoch 3", weights]
