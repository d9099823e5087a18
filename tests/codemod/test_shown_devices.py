"""Texts that show a device: a note where it loses its number."""

from __future__ import annotations

from collections import Counter

import pytest

from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.looks import devices
from dp2ddp.codemod.model.modules import Module
from tests.codemod.programs import WRAP, project
from tests.codemod.scripts import converted

SCRIPT = """\
import argparse
import logging
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--gpu", type=int, default=0)
args = parser.parse_args()
gpu_ids = [0, 1]
logger = logging.getLogger()
net = torch.nn.DataParallel(torch.nn.Linear(4, 2).cuda(args.gpu), device_ids=gpu_ids)
memory = 4
LINE
net(torch.ones(4, 4).cuda(gpu_ids[0])).sum().backward()
"""


@pytest.mark.parametrize(
    ("made", "shown", "is_noted"),
    [
        ('torch.device("cuda:0" if torch.cuda.is_available() else "cpu")', 'print(f"on {device}")', True),
        ('torch.device("cuda", args.gpu)', 'print("device:", device)', True),
        ('"cuda:0"', 'logger.info("training on %s", device)', True),
        ('torch.device("cuda")', 'print(f"on {device}")', False),
    ],
)
def test_a_shown_device_that_loses_its_number_is_noted(made: str, shown: str, is_noted: bool) -> None:
    conversion = converted(SCRIPT.replace("LINE", f"device = {made}; {shown}"))
    notes = [note.because for note in conversion.notes if note.code == "DDP102"]
    assert [note.partition(":")[0] for note in notes] == ["shows `device`"] * is_noted


@pytest.mark.parametrize(
    "line",
    [
        'print("Use GPU: {} for training".format(args.gpu))',
        'print("GPU memory: {}".format(memory))',
        'logger.info("rank %d, GPU %d", 0, gpu_ids[0])',
        'print("GPU: %d")',
        'found = "GPU: {}".format(args.gpu)',
    ],
)
def test_a_number_that_stays_as_it_was_is_not(line: str) -> None:
    conversion = converted(SCRIPT.replace("LINE", line))
    assert line in conversion.after
    assert not (*conversion.hazards, *(note for note in conversion.notes if note.code == "DDP102"))


@pytest.mark.parametrize(
    "place",
    [
        'f"cuda:0"',
        '"cuda:" + str(0)',
        '"cuda:" + "0"',
        '"cuda:{}".format(0)',
        '"cuda:{0}".format(0)',
        '"cuda:%d" % (0,)',
    ],
)
def test_a_device_whose_name_is_put_together_is_the_ranks_own(place: str) -> None:
    assert (
        '= torch.ones(2).to("cuda")\n'
        in converted(SCRIPT.replace("LINE", f"x = torch.ones(2).to({place})")).after
    )


def test_a_long_sum_names_no_device() -> None:
    total = " + ".join(f"x{number}" for number in range(900))
    assert f"x = {total}\n" in converted(SCRIPT.replace("LINE", f"x = {total}")).after


def test_each_file_is_searched_for_devices_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not once for every other one."""
    searched: Counter[str] = Counter()
    texts = devices._texts

    def counted(module: Module) -> object:
        searched[module.source.name] += 1
        return texts(module)

    monkeypatch.setattr(devices, "_texts", counted)
    modules = {f"m{number}": 'print("cuda:0")\n' for number in range(9)}
    convert(project("".join(f"import {name}\n" for name in modules) + WRAP, **modules))
    assert len(searched) == 10
    assert max(searched.values()) <= 4


@pytest.mark.parametrize(
    ("test", "after"),
    [
        ("x.device == device", "x.device == numbered_device(device)"),
        ('torch.device("cuda:0") != x.device', 'numbered_device(torch.device("cuda")) != x.device'),
        ('str(x.device) == "cuda:0"', 'str(x.device) == str(numbered_device("cuda"))'),
        ('device == torch.device("cuda:0")', 'device == torch.device("cuda")'),
        ("x.device == memory.device", "x.device == memory.device"),
        ("place != device", "place != numbered_device(device)"),
    ],
)
def test_a_device_that_is_compared_with_a_tensors_has_its_number_again(test: str, after: str) -> None:
    """A rank's tensors are on cuda:0 or cuda:1, none is on cuda."""
    line = f'device = torch.device("cuda:0")\nplace = x.device\nif {test}:\n    memory = 5'
    conversion = converted(SCRIPT.replace("LINE", line))
    assert f"if {after}:\n" in conversion.after
    assert not conversion.hazards


def test_a_device_that_is_compared_in_a_forward_is_a_hazard() -> None:
    """Under DataParallel it is the first replica's alone; of the ranks' devices each is its own."""
    conversion = converted(
        'import torch\ndevice = torch.device("cuda:0")\nclass Net(torch.nn.Module):\n    def forward(self, x):\n'
        "        return x * 2 if x.device == device else x\n"
        "net = torch.nn.DataParallel(Net()).to(device)\n"
    )
    assert [hazard.code for hazard in conversion.hazards] == ["DDP908"]
