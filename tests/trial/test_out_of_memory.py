"""A container with less memory than four runs at once take; as root alone, who can make a control group."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]

GB = 2**30
TRAIN = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3000, 2800), nn.ReLU(), nn.Linear(2800, 2800), nn.ReLU(), nn.Linear(2800, 10))
net = nn.DataParallel(net.cuda())
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
for step in range(4):
    loss = nn.functional.cross_entropy(net(torch.randn(16, 3000).cuda()), torch.randint(10, (16,)).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")
"""


class Container:
    """A control group; `limit_in` is the name of the file with its limit."""

    def __init__(self, folder: Path, limit_in: str) -> None:
        self.folder, self._limit_in = folder, limit_in

    def limit(self, size: int) -> None:
        (self.folder / self._limit_in).write_text(str(size))

    def run(self, *command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        code = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])"
        enter = [sys.executable, "-c", code, str(self.folder / "cgroup.procs"), sys.executable, *command]
        return subprocess.run(enter, cwd=folder, capture_output=True, text=True, check=False, timeout=500)


@pytest.fixture
def container() -> Iterator[Container]:
    name = f"dp2ddp-test-{os.getpid()}"
    made = None
    for top, limit_in in (
        (Path("/sys/fs/cgroup"), "memory.max"),
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    ):
        try:
            (top / name).mkdir()
        except OSError:
            continue
        if (top / name / limit_in).exists():
            made = Container(top / name, limit_in)
            break
        (top / name).rmdir()
    if made is None:
        pytest.skip("no control group can be made here")
    yield made
    for _ in range(50):  # what the test started has ended, and the kernel may need a moment to see it
        try:
            made.folder.rmdir()
            break
        except OSError:
            time.sleep(0.1)


def test_what_does_not_fit_at_once_goes_one_after_the_other(container: Container, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    container.limit(int(3.2 * GB))
    done = container.run("-m", "dp2ddp", "verify", "train.py", "-n", "2", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "too little for all at once" in done.stderr
    (verdict,) = json.loads(done.stdout)["verdicts"]
    assert (verdict["same"], verdict["in_turn"]) == (True, True)
    assert verdict["float64"]["identical"]
    assert len(verdict["memory"]) == 4


def test_what_does_not_fit_alone_is_said(container: Container, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    container.limit(int(1.3 * GB))
    done = container.run("-m", "dp2ddp", "verify", "train.py", "-n", "2", folder=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "runs out of memory in d" in done.stderr
    assert "of the 1.4 GB of this container: the system ended one (SIGKILL)" in done.stderr
    assert "what now: a smaller batch" in done.stderr
    assert "the original that fails" not in done.stderr
