"""Which wrapper a program gets: each case of wrappers/cases.diff says it, and some of them why."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.codemod.looks.wrapper import Choice, wrapper
from tests.codemod.programs import converted, program
from tests.diffs import Script, cases, scripts

FILE = Path(__file__).with_name("wrappers") / "cases.diff"


def test_an_ordinary_script_gets_torchs_own() -> None:
    assert wrapper(program(scripts(FILE)["bases/ordinary"].text)) is Choice.ONE_PLAIN_STEP


@pytest.mark.parametrize("script", cases(FILE), ids=lambda script: script.name)
def test_a_program_gets_its_wrapper(script: Script) -> None:
    choice = wrapper(program(script.text))
    assert choice.helper == script.said["wrapper"]
    assert choice.reason == script.said.get("why", choice.reason)


def test_a_layer_that_a_library_makes_by_its_name_fills_nothing() -> None:
    assert wrapper(program(scripts(FILE)["bases/of_library"].text)).helper == "WholeBatchParallel"


INSIDE = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.layer(x)
net = torch.nn.DataParallel(Net())
"""
AROUND = """
import torch
from torch.cuda.amp import autocast
net = torch.nn.DataParallel(torch.nn.Linear(2, 2), device_ids=[0])
with autocast(dtype=torch.float16):
    net(x)
"""


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (INSIDE, 0),
        (AROUND, 0),
        (AROUND.replace("[0]", "[0, 1]"), 0),
        (AROUND.replace("float16", "bfloat16"), 0),
        (AROUND.replace("[0]", "[0, 1]").replace("float16", "bfloat16"), 1),
    ],
    ids=["inside", "one device", "float16", "one device, bfloat16", "bfloat16"],
)
def test_autocast_around_the_model_is_noted_where_replicas_had_another_dtype(text: str, count: int) -> None:
    names = [note.why for note in converted(text).notes]
    assert names.count("autocast-dtype") == count
