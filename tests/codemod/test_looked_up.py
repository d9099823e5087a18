"""Classes that are looked up by names that stand elsewhere: nothing is to do only where all of them were read."""

from __future__ import annotations

import pytest

from tests.codemod.programs import converted

pytestmark = pytest.mark.usefixtures("own_folder")  # no settings lie beside it
START = """
import functools, inspect, operator, os, pkgutil, sys
import torch
import torch.nn as nn
import torch.nn.functional as F
name = os.environ["WRAP"]
net = nn.Linear(2, 2)
library = torch.nn
get = getattr

def build(home, name):
    return getattr(home, name)

class Library:
    layers = nn
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
        'get(nn, "DataParallel")',
        'build(library, "DataParallel")',
        'functools.partial(operator.methodcaller("DataParallel", net), nn)',
        'functools.reduce(getattr, "nn.DataParallel".split("."), torch)',
        '[*map(eval, ["nn.DataParallel"])][0]',
        'operator.attrgetter("nn.DataParallel")(torch)',
        'nn.__getattribute__("DataParallel")',
        'nn.parallel.__dict__.get("DataParallel")',
        'vars(nn).get("DataParallel", nn.Identity)',
        "Library.layers.DataParallel",
        "pkgutil.resolve_name('torch.nn:DataParallel')",
    ],
)
def test_a_name_that_is_put_together_is_a_hazard(wrap: str) -> None:
    found = converted(f"{START}net = {wrap}(net)\n")
    assert [each.code for each in found.hazards] == ["DDP902"]
    assert not found.changed


@pytest.mark.parametrize(
    "wrap", ["library.DataParallel", "torch.optim.torch.nn.DataParallel", "F.torch.nn.DataParallel"]
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
        'getattr(nn, "%sParallel" % name)',
        "functools.partial(getattr, nn)(name)",
        "build(nn, name)",
        '(lambda of: of["nn"])({"nn": nn, "torch": torch})',
        "[*map(eval, [name])][0]",
        "nn.Module.__subclasses__()[-1]",
        "getattr(nn, f'{name}Parallel')",
        "getattr(nn, 'Data{}'.format(name))",
    ],
)
def test_a_name_that_nobody_can_read_is_told(wrap: str) -> None:
    found = converted(f"{START}net = {wrap}(net)\n")
    assert not found.hazards
    assert "DDP902" in [each.code for each in found.notes]


@pytest.mark.parametrize(
    "name", ['"%sParallel" % "Data"', '"{}Parallel".format("Data")', "f\"Data{'Parallel'}\""]
)
def test_a_name_that_is_put_together_of_texts_is_read(name: str) -> None:
    found = converted(f"{START}net = getattr(nn, {name})(net)\n")
    assert [each.code for each in found.hazards] == ["DDP902"]


@pytest.mark.parametrize(
    "made",
    [
        'getattr(nn, "ReLU")()',
        'getattr(nn, f"Conv{name}d")(1, 1, 1)',
        'getattr(nn, name + "Loss")()',
        'getattr(nn, "BatchNorm%dd" % name)(1)',
        'getattr(torch.nn, "{}Norm".format(name))(1)',
        'vars(nn)["ReLU"]()',
        'eval("models." + name)',
        "getattr(sys.modules[__name__], name)",
        "getattr(net, name)",
        "hasattr(nn, name)",
        "globals()[name]",
        "net.nn(name) if name else nn is library",
        'sys.modules["torch.nn.functional"].relu',
        'parser.add_argument("--betas", type=eval)',
    ],
)
def test_what_is_no_class_of_torch_nn_is_not_told(made: str) -> None:
    found = converted(f"{START}made = {made}\n")
    assert not (*found.hazards, *found.notes)


@pytest.mark.parametrize(
    ("wrap", "said"),
    [
        ('globals()["DataParallel"]', "hazards"),
        ("globals()[name]", "notes"),
        ("getattr(sys.modules[__name__], name)", "notes"),
        ('[each for name, each in locals().items() if name.endswith("Parallel")][0]', "notes"),
    ],
)
def test_what_a_star_import_has_brought_may_be_asked_of_the_file(wrap: str, said: str) -> None:
    found = converted(f"from torch.nn import *\n{START}net = {wrap}(net)\n")
    assert [each.code for each in getattr(found, said)] == ["DDP902"]


def test_a_question_for_the_name_of_a_class_names_no_class_that_is_looked_up() -> None:
    found = converted(
        f"{START}act = getattr(nn, name)\nnet = nn.DataParallel(net)\n"
        "if type(net).__name__ in ('DataParallel', 'Net'):\n    net = net.module\n"
    )
    assert not found.hazards
