"""Many ranks on few cores, and ranks that two agents start: the same training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from dp2ddp.cli import main
from dp2ddp.runtime.process.meeting import free_port

# images that are augmented in a worker, BatchNorm, a short last batch; losses are printed
SCRIPT = """
import random
import sys

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 75

    def __getitem__(self, i):
        image = torch.arange(12.0).view(3, 4).sin() * i + random.random()
        return image, i % 5

torch.manual_seed(0)
random.seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
loader = DataLoader(Images(), batch_size=34, shuffle=True, num_workers=1)
net = nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5))
net = nn.DataParallel(net.to(device))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for x, y in loader:
    loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.4f}")
torch.save(net.module.state_dict(), sys.argv[1])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script, and its conversion."""
    folder = tmp_path_factory.mktemp("scale")
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    assert CliRunner().invoke(main, ["convert", str(folder / "train.py")]).exit_code == 0
    return folder


@pytest.mark.slow
@pytest.mark.torchrun
def test_16_ranks_with_3_rows_or_fewer_each(folder: Path) -> None:
    command = [sys.executable, "-m", "dp2ddp", "verify", "train.py", "-n", "16", "--", "weights.pt"]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.startswith("SAME")
    assert f"; 7: {' + '.join('1' * 7 + '0' * 9)}" in told.stdout


@pytest.mark.torchrun
@pytest.mark.slow
def test_two_agents_of_two_ranks_train_as_data_parallel_on_four_devices(folder: Path) -> None:
    """torchrun twice, which meet over c10d on the loopback: to the ranks, two nodes."""
    alone = [sys.executable, "-m", "dp2ddp", "run", "train.py", "--mode", "dp", "-n", "4", "--virtual"]
    wanted = subprocess.run(
        [*alone, "--", "wanted.pt"], cwd=folder, capture_output=True, text=True, check=True
    )
    agents = [start_agent(folder, port) for port in [free_port()] for _ in range(2)]
    ended = [agent.communicate(timeout=300) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], ended
    printed = [out.splitlines() for out, _ in ended]
    assert sorted(map(len, printed)) == [0, 3], "one of the agents has rank 0, which speaks"
    assert max(printed) == wanted.stdout.splitlines()
    one, other = load(folder / "weights.pt"), load(folder / "wanted.pt")
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=1e-5, atol=1e-6)


def start_agent(folder: Path, port: int) -> subprocess.Popen[str]:
    """One of two agents, with two ranks."""
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "scale"]
    start = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "2",
        "--nproc-per-node",
        "2",
        *meeting,
    ]
    return subprocess.Popen(
        [*start, "train_ddp.py", "weights.pt"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def load(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state
