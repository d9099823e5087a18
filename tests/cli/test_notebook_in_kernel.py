"""Notebooks in a real Jupyter kernel: the one with DataParallel, and its script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ipynb import notebook
from jupyter_client.manager import KernelManager

from dp2ddp.runtime.process.server import Server
from tests.cli.forked import WITHOUT_TORCHRUN, forked
from tests.cli.scripts import dp2ddp

pytestmark = pytest.mark.torchrun

CELLS = (
    "md:# Training",
    "import os\nimport torch\nimport torch.nn as nn\n"
    "from torch.utils.data import DataLoader, TensorDataset\n"
    "torch.set_default_dtype(torch.float64)\n"
    "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
    "epochs = int(os.environ.get('EPOCHS', 2))\n"
    "torch.manual_seed(0)\ndata = TensorDataset(torch.randn(12, 3), torch.randn(12, 2))\n"
    "loader = DataLoader(data, batch_size=4, shuffle=True)",
    "model = nn.DataParallel(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)), device_ids=[0, 1])\n"
    "model.to(device)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\nmodel",
    "%%time\n!mkdir -p out\nfor epoch in range(epochs):\n"
    "    for x, y in loader:\n        optimizer.zero_grad()\n"
    "        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))\n"
    "        loss.backward()\n        optimizer.step()\n        print('loss', loss.item().hex(), flush=True)\n"
    "torch.save(model.state_dict(), 'out/last.pt')",
)
NAME = "Copy of {new} train"  # as Colab calls them; IPython puts variables into braces
SECONDS = 240  # for a cell, on a machine with much else to do


@pytest.fixture(scope="module", autouse=True)
def folders_of_jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of the user's own settings, and nothing left in them."""
    folder = tmp_path_factory.mktemp("jupyter")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR"):
            patch.setenv(name, str(folder / name))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a notebook, and the script that it is converted to."""
    made = tmp_path_factory.mktemp("a folder")
    notebook(made, *CELLS, name=f"{NAME}.ipynb")
    converted = dp2ddp(made, "convert", f"{NAME}.ipynb")
    assert converted.returncode == 0, converted.stderr
    return made


def losses_in(text: str) -> list[str]:
    return re.findall(r"^loss (\S+)", text, re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """What a cell put out, and the name of the error that ended it."""

    text: str
    error: str


class Kernel:
    """A kernel that is asked cell by cell."""

    def __init__(self, manager: KernelManager) -> None:
        self.manager = manager
        self.client = manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=SECONDS)

    def run(self, source: str) -> Answer:
        texts: list[str] = []

        def listen(message: dict[str, Any]) -> None:
            content = message["content"]
            parts = content.get("text"), content.get("data", {}).get("text/plain"), content.get("evalue")
            texts.extend(filter(None, parts))

        reply = self.client.execute_interactive(source, timeout=SECONDS, output_hook=listen)["content"]
        return Answer(
            "".join(texts), f"{reply['ename']}: {reply['evalue']}" if reply["status"] == "error" else ""
        )


@pytest.fixture(scope="module")
def started(folder: Path) -> Iterator[Kernel]:
    """One that runs in the folder."""
    manager = KernelManager()
    manager.start_kernel(cwd=str(folder))
    yield Kernel(manager)
    manager.shutdown_kernel(now=True)


def sources(path: Path) -> list[str]:
    cells = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.fixture(scope="module")
def dp_losses(folder: Path, server: Server) -> list[str]:
    """Of torch's own DataParallel on two virtual devices."""
    result = forked(server, folder, "run", f"{NAME}.ipynb", "--mode", "dp", "-n", 2)
    assert result.exit_code == 0, result.stderr
    return losses_in(result.stdout)


class TestCellByCell:
    """In one kernel: the tests come in this order."""

    def test_the_script_itself_runs_on_one_device_again_and_again(
        self, started: Kernel, dp_losses: list[str]
    ) -> None:
        first, second = (losses_in(started.run(f'%run "{NAME}_ddp.py"').text) for _ in range(2))

        assert len(first) == len(dp_losses)
        assert second == first  # in a process that has joined already

    def test_the_notebook_with_dataparallel_prints_what_the_ranks_do_but_for_rounding(
        self, folder: Path, started: Kernel, dp_losses: list[str]
    ) -> None:
        """In a kernel without GPUs DataParallel is the model itself: whole batches, added otherwise."""
        *_, trained = (started.run(cell).text for cell in sources(folder / f"{NAME}.ipynb"))
        losses = losses_in(trained)

        assert [float.fromhex(loss) for loss in losses] == pytest.approx(
            [float.fromhex(loss) for loss in dp_losses], rel=1e-12, abs=0
        )

    def test_dp2ddp_works_there_even_behind_a_traceback(self, started: Kernel) -> None:
        """IPython reads the files of a traceback as trees, and hangs something of its own on nodes that all share."""
        assert "ZeroDivisionError" in started.run("def f():\n    return 1 / 0\nf()").error
        assert "invalid literal for int()" in started.run(f'%env EPOCHS=many\n%run "{NAME}_ddp.py"').text

        started.run(f"%env EPOCHS=1\n{WITHOUT_TORCHRUN}\nimport dp2ddp")
        answer = started.run(f"report = dp2ddp.verify('{NAME}.ipynb', devices=2, steps=2)\nreport.same")

        assert answer.error == ""
        assert "True" in answer.text
