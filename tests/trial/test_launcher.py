"""How a port is started: by what its text says."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.options import VerifyOptions
from dp2ddp.trial.scripts import starts_its_ranks
from dp2ddp.trial.subject import subject_of

JOINS = "import torch.distributed as dist\n"


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("dist.init_process_group('nccl')\n", False),
        ("import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n", True),
        ("from torch.multiprocessing import spawn\nspawn(main, nprocs=2)\n", True),
        ("from accelerate import notebook_launcher\nnotebook_launcher(main, num_processes=2)\n", True),
        ("Process(target=f).start()\ndist.init_process_group('gloo', rank=r, world_size=2)\n", True),
        (
            "Process(target=log).start()\nr = int(os.environ['RANK'])\ndist.init_process_group('gloo')\n",
            False,
        ),
        ("Process(target=log).start()\n", False),
    ],
)
def test_a_script_that_starts_its_ranks_is_known_by_its_calls(tmp_path: Path, text: str, own: bool) -> None:
    script = tmp_path / "port.py"
    script.write_text(JOINS + text)
    assert starts_its_ranks(script) is own


def test_the_line_that_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "a port.py"):
        Path(name).write_text("import torch\n")
    lines = [
        subject_of(VerifyOptions("train.py", converted="a port.py", launcher=launcher)).version.launch
        for launcher in ("python", "torchrun")
    ]
    assert lines == ["python 'a port.py'", "torchrun --standalone --nproc-per-node N 'a port.py'"]
