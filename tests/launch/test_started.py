"""What `dp2ddp launch` starts: one agent, two agents that meet on the loopback, and ranks that are started again."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from click.testing import CliRunner

from dp2ddp.cli import main
from dp2ddp.runtime.process.meeting import free_port
from tests.cli.scripts import TRAIN, python, script, variables

pytestmark = pytest.mark.torchrun

# the node it is on, as a file
NODE = "import os\nopen(f'node {os.environ[\"GROUP_RANK\"]}', 'w').close()\n"


# a rank ends itself in its third epoch, if it is told to: it goes on from its own checkpoint
SCRIPT = """
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

from dp2ddp.helpers import WholeBatchDDP, init_distributed, save_on_rank0

RANK, VICTIMS = os.environ["RANK"], sys.argv[1:]
init_distributed()
torch.manual_seed(0)
net = WholeBatchDDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3)))
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
    save_on_rank0({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pt")
print(sum(p.double().sum().item() for p in net.parameters()))
"""
WAITING = """
import os, time
os.environ.get("init_process_group")
open(os.environ["RANK"], "w").close()
time.sleep(600)
"""


@pytest.fixture
def converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    script(tmp_path, TRAIN.replace(".cuda()", ""))
    result = CliRunner().invoke(main, ["convert", "train.py"])
    assert result.exit_code == 0, result.output
    port = tmp_path / "train_ddp.py"
    port.write_text(NODE + port.read_text())
    return port


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dp2ddp", "launch", *arguments],
        cwd=folder, env=variables(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_nodes_train_what_one_machine_does(converted: Path) -> None:
    """Two agents that meet on the loopback: the same weights, to the bit."""
    folder = converted.parent
    here = start(folder, "train_ddp.py", "-n", "2", "--", "--lr", "0.2")
    said, errors = here.communicate(timeout=120)
    assert here.returncode == 0, errors
    assert "starting torchrun --standalone --nproc-per-node 2 train_ddp.py --lr 0.2\n" in errors
    assert "OMP_NUM_THREADS" not in errors
    weights = taken(folder)

    options = ["--on", "torchrun", "-n", "1", "-N", "2", "--rendezvous", f"localhost:{free_port()}"]
    nodes = [start(folder, "train_ddp.py", *options, "--", "--lr", "0.2") for _ in range(2)]
    ends = [node.communicate(timeout=120) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], ends
    assert sorted(stdout for stdout, _ in ends) == ["", said]  # rank 0 alone is heard
    assert (folder / "node 1").exists()  # two agents, one world
    assert all(torch.equal(tensor, weights[name]) for name, tensor in taken(folder).items())


def taken(folder: Path) -> dict[str, torch.Tensor]:
    """The weights that a run has saved; the next one must save its own."""
    weights: dict[str, torch.Tensor] = torch.load(folder / "last.pt")
    (folder / "last.pt").unlink()
    return weights


@pytest.mark.slow
def test_a_killed_rank_is_started_again_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """On both of two nodes, which meet by c10d or as Kubeflow says; the weights end as where nothing is killed."""
    folders = [tmp_path / name for name in ("whole", "by c10d", "by Kubeflow")]
    for folder in folders:
        folder.mkdir()
        script(folder, SCRIPT)
    undisturbed, errors = start(folders[0], "train.py", "-n", "2").communicate(timeout=120)
    options = ["-n", "1", "-N", "2", "--restarts", "1"]
    meeting = ["--on", "torchrun", "--rendezvous", f"localhost:{free_port()}"]
    agents = [start(folders[1], "train.py", *options, *meeting, "--", "1") for _ in range(2)]
    assert said_by(agents) == f"from epoch 2\n{undisturbed}", errors
    manifest = ["--on", "kubernetes", "--image", "i", "-o", "-"]
    text, _ = start(folders[2], "train.py", *options, *manifest, "--", "1").communicate(timeout=60)
    assert said_by(in_pods(folders[2], text)) == f"from epoch 2\n{undisturbed}"


def in_pods(folder: Path, manifest: str) -> list[subprocess.Popen[str]]:
    """A TrainJob's containers, with the variables that Kubeflow Trainer gives them (torch.go, EnforceMLPolicy)."""
    arguments = [json.loads(word) for word in re.findall(r'^      - (".*")$', manifest, re.MULTILINE)]
    port = str(free_port())
    job = {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": "localhost",
        "PET_MASTER_PORT": port,
    }
    return [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *arguments],
            cwd=folder, env={**variables(), **job, "PET_NODE_RANK": str(node)}, stdout=-1, stderr=-1, text=True,
        )
        for node in range(2)
    ]  # fmt: skip


def said_by(agents: list[subprocess.Popen[str]]) -> str:
    """What all of them printed; none has failed."""
    ends = [agent.communicate(timeout=120) for agent in agents]
    assert [agent.returncode for agent in agents] == [0] * len(agents), ends
    return "".join(stdout for stdout, _ in ends)


def test_the_exit_code_and_signals_are_torchruns_own(tmp_path: Path) -> None:
    process = start(script(tmp_path, WAITING).parent, "train.py", "-n", "2")
    until_both_run(tmp_path, process)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode not in (0, 3)
    assert psutil.wait_procs(family, timeout=20)[1] == []


def until_both_run(folder: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not ((folder / "0").exists() and (folder / "1").exists()):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)


def test_without_torch_it_says_what_is_missing(tmp_path: Path) -> None:
    script(tmp_path, "import torch\ntorch.distributed.init_process_group()\n")
    code = (
        "import importlib.util as u, sys\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest)\n"
        "from dp2ddp.__main__ import run\nsys.argv = ['dp2ddp', 'launch', 'train.py', '-n', '2']\nrun()\n"
    )
    result = python(tmp_path, "-c", code)
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.startswith("dp2ddp: torch is not installed for ")
    assert result.stderr.count("\n") == 1
