"""Classes that are looked up by names that stand elsewhere: nothing is to do only where all of them were read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.codemod.programs import converted


@pytest.fixture(autouse=True)
def no_settings_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


START = """
import inspect, operator, os, sys
import torch
import torch.nn as nn
name = os.environ["WRAP"]
net = nn.Linear(2, 2)
library = torch.nn
"""


@pytest.mark.parametrize(
    "wrap",
    [
        'eval("nn.Data" + "Parallel")',
        'vars(nn)["Data" + "Parallel"]',
        'operator.attrgetter("nn.Data" + "Parallel")(torch)',
        "getattr(getattr(torch, 'nn'), f\"{'Data'}Parallel\")",
        'torch.nn.__dict__["".join(["Data", "Parallel"])]',
        '[getattr(nn, each) for each in ("ReLU", "DataParallel")][1]',
    ],
)
def test_a_name_that_is_put_together_is_a_hazard(wrap: str) -> None:
    found = converted(f"{START}net = {wrap}(net)\n")
    assert [each.code for each in found.hazards] == ["DDP902"]
    assert not found.changed


@pytest.mark.parametrize(
    "wrap",
    [
        'operator.attrgetter("nn.DataParallel")(torch)',
        'nn.__getattribute__("DataParallel")',
        'nn.parallel.__dict__.get("DataParallel")',
        'vars(nn).get("DataParallel", nn.Identity)',
        "library.DataParallel",
    ],
)
def test_a_name_that_is_written_there_is_followed(wrap: str) -> None:
    found = converted(f"{START}net = {wrap}(net)\n")
    assert not found.hazards
    assert "net = WholeBatchParallel(net)" in found.after.splitlines()


@pytest.mark.parametrize(
    "wrap",
    [
        "getattr(torch.nn, name)",
        'getattr(sys.modules["torch.nn"], name)',
        "eval(name)",
        "dict(inspect.getmembers(nn))[name]",
        'next(each for other, each in vars(nn).items() if other.startswith("DataP"))',
        "vars(sys.modules[nn.Linear.__module__]).get(name)",
    ],
)
def test_a_name_that_nobody_can_read_is_told(wrap: str) -> None:
    found = converted(f"{START}net = {wrap}(net)\n")
    assert not found.hazards
    assert "DDP902" in [each.code for each in found.notes]


@pytest.mark.parametrize(
    "made",
    [
        'getattr(nn, "ReLU")()',
        'vars(nn)["ReLU"]()',
        'eval("models." + name)',
        "getattr(sys.modules[__name__], name)",
        "getattr(net, name)",
    ],
)
def test_what_is_no_class_of_torch_nn_is_not_told(made: str) -> None:
    found = converted(f"{START}made = {made}\n")
    assert not (*found.hazards, *found.notes)
