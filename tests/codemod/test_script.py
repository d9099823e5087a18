"""A script's own distributed mode, what the helpers hold, devices: what a conversion says and leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.knowledge import Does, what_is
from dp2ddp.codemod.looks.wraps import WRAPS
from dp2ddp.codemod.model.program import Program
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import LocalModule, Project, read_project
from tests.codemod.programs import said
from tests.codemod.scripts import converted as with_imported_helpers

SCRIPT = """\
import os
import numpy as np
import torch
from torch.utils.data import DataLoader

def start(args):
    os.makedirs(args.logs)
    torch.distributed.init_process_group("nccl")

np.random.seed(seed=0)
loader = DataLoader(data, num_workers=2)
net = torch.nn.DataParallel(net).cuda(0)
os.makedirs("out")
torch.save(net.state_dict(), "out/net.pt")
"""
CONVERTED = """\
import os
import numpy as np
import torch
from ddp_helpers import Rank0Loader, WholeBatchParallel, init_distributed, run_on_rank0, save_on_rank0

def start(args):
    os.makedirs(args.logs)
    torch.distributed.init_process_group("nccl")

init_distributed()

np.random.seed(seed=0)
loader = Rank0Loader(data, num_workers=2)
net = WholeBatchParallel(net).cuda()
run_on_rank0(os.makedirs, "out")
save_on_rank0(net.state_dict(), "out/net.pt")
"""


@pytest.fixture
def converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Conversion:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    return convert(read_project(script))


def test_names_calls_and_devices_are_replaced_outside_of_the_script_s_own_mode(converted: Conversion) -> None:
    assert converted.after == CONVERTED
    assert not converted.hazards


def test_of_a_function_that_may_set_up_a_mode_of_its_own_only_that_branch_stays(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "def wrap(net):\n"
        "    return torch.nn.DataParallel(net)\n"
        "def main(args):\n"
        "    if args.distributed:\n"
        "        torch.distributed.init_process_group('nccl')\n"
        "        torch.save(args, 'args.pt')\n"
        "    net = wrap(make(args))\n"
        "    torch.save(net.state_dict(), 'net.pt')\n"
        "main(parse())\n"
    )
    after = convert(read_project(script)).after
    assert "        torch.save(args, 'args.pt')\n" in after
    assert "    save_on_rank0(net.state_dict(), 'net.pt')\n" in after


def test_a_device_that_is_not_the_models_is_a_hazard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"{SCRIPT}# é\nhead = head.to('cuda:1')\n")
    found = convert(read_project(script))
    assert [(each.code, each.line, each.column) for each in found.hazards] == [("DDP102", 16, 16)]
    assert found.after.endswith("head = head.to('cuda:1')\n")  # the rest is converted


def test_what_is_looked_for_as_a_wrap_is_one_in_the_table() -> None:
    rows = [what_is(name) for name in WRAPS]
    assert [row and row.does for row in rows] == [Does.WRAP] * len(WRAPS)


@pytest.mark.parametrize(("maker", "says"), [("nn.MSELoss()", ["hazard DDP201:4"]), ("nets.make()", [])])
def test_what_a_loss_of_the_script_gives_is_no_model(maker: str, says: list[str]) -> None:
    text = f"import nets\nfrom torch import nn\nmade = {maker}\nnet = nn.DataParallel(made(x, y))\n"
    assert said(with_imported_helpers(text)) == says


def test_what_a_package_calls_by_the_name_of_its_file_is_meant_by_that_name() -> None:
    files = {
        "nets/__init__.py": "from .resnet import resnet\nfrom . import near\n",
        "nets/resnet.py": "def resnet(): pass\n",
        "nets/near.py": "def near(): pass\n",
        "nets/vgg.py": "def vgg(): pass\n",
    }
    local = tuple(
        LocalModule(
            path.removesuffix(".py").removesuffix("/__init__").replace("/", "."), SourceFile(Path(path), text)
        )
        for path, text in files.items()
    )
    text = (
        "import nets\nfrom nets import near, resnet, vgg\nnets.resnet()\nresnet()\nnear.near()\nvgg.vgg()\n"
    )
    entry = Program(Project(SourceFile(None, text), local)).entry
    assert [call.name for call in entry.calls] == [
        *["nets.resnet.resnet"] * 2,
        "nets.near.near",
        "nets.vgg.vgg",
    ]
