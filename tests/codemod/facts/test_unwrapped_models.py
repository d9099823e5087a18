"""Models that are no part of a wrapped one run whole, in the main flow: no turns, no hazards for what they keep."""

from __future__ import annotations

import textwrap

import pytest

from tests.codemod.scripts import converted

HEAD = """
import copy, pickle, random
import torch
from torch import nn
calls = 0
class Loss(nn.Module):
    def forward(self, a, b):
        global calls
        calls += 1
        return ((a - b) ** 2).mean() * random.random()
class Net(nn.Module):
    def __init__(self, inner=None, kind=None):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.inner = inner
    def forward(self, x, extra=None):
        return self.fc(x)
"""
TAIL = """
for x in batches:
    out = net(x)
    loss = criterion(out, x)
    loss.backward()
print(calls)
"""


def hazards(text: str) -> list[str]:
    conversion = converted(textwrap.dedent(HEAD) + textwrap.dedent(text))
    return [one.code for one in (*conversion.hazards, *conversion.notes) if one.code in ("DDP908", "DDP905")]


APART = [
    "net = nn.DataParallel(Net())\ncriterion = Loss()\n" + TAIL,
    "net = Net()\nnet = nn.DataParallel(net).cuda()\ncriterion = Loss().cuda()\n" + TAIL,
    "def build():\n    return Net(nn.ReLU())\nnet = nn.DataParallel(build())\ncriterion = Loss()\n" + TAIL,
    """
    class Trainer:
        def __init__(self, model, criterion):
            self.net = nn.DataParallel(model)
            self.criterion = criterion
        def step(self, x):
            return self.criterion(self.net(x), x)
    Trainer(Net(), Loss()).step(x)
    print(calls)
    """,
    """
    net = nn.DataParallel(nn.Linear(2, 2))
    kept = []
    other = nn.Linear(2, 2)
    other.register_forward_hook(lambda m, i, o: kept.append(o))
    net(x), other(x)
    print(kept)
    """,
]


@pytest.mark.parametrize("text", APART)
def test_what_is_never_wrapped_runs_whole(text: str) -> None:
    assert hazards(text) == []


INSIDE = [
    "net = nn.DataParallel(Net(Loss()))\ncriterion = Loss()\n" + TAIL,
    "criterion = Loss()\nnet = nn.DataParallel(Net(inner=criterion))\n" + TAIL,
    "net = Net()\nnet.extra = Loss()\nnet = nn.DataParallel(net)\ncriterion = net.module.extra\n" + TAIL,
    "net = nn.DataParallel(Net())\nnet.module.add_module('extra', Loss())\ncriterion = net\n" + TAIL,
    "net = nn.DataParallel(Net())\nsetattr(net.module, 'extra', Loss())\ncriterion = net\n" + TAIL,
    "net = Net()\nmodel = net\nfor m in model.children():\n    m.extra = Loss()\nnet = nn.DataParallel(net)\n"
    + TAIL,
    "criterion = Loss()\nnet = nn.DataParallel(Net())\nout = net(x, criterion)\nprint(calls)\n",
    "criterion = Loss()\nnet = nn.DataParallel(Net())\nout = net(x, extra=criterion)\nprint(calls)\n",
    "parts = [Net()]\nparts.append(Loss())\nnet = nn.DataParallel(nn.Sequential(*parts))\n" + TAIL,
    "KINDS = {'loss': Loss}\nnet = nn.DataParallel(KINDS[name]())\n" + TAIL,
    "register(Loss)\nnet = nn.DataParallel(Net())\n" + TAIL,
    "net = nn.DataParallel(globals()[name]())\n" + TAIL,
    "net = nn.DataParallel(torch.load('net.pt'))\n" + TAIL,
    "def wrap(model):\n    return nn.DataParallel(model)\nnet = handle(wrap)\n" + TAIL,
    "def build(kind):\n    return Net(kind=kind())\nnet = nn.DataParallel(build(Loss))\n" + TAIL,
    "class Both(Net):\n    def __init__(self):\n        super().__init__()\n        self.make()\n"
    "    def make(self):\n        self.loss = Loss()\nnet = nn.DataParallel(Both())\n" + TAIL,
    "@register\nclass Other(Loss):\n    pass\nnet = nn.DataParallel(Net())\nnet.kind = Other()\n" + TAIL,
    "net = nn.DataParallel(Net())\nprobe = net.module.fc\nkept = []\n"
    "probe.register_forward_hook(lambda m, i, o: kept.append(o))\nnet(x)\nprint(kept)\n",
    "net = nn.DataParallel(Net())\nkept = []\nfor m in net.modules():\n"
    "    m.register_forward_hook(lambda m, i, o: kept.append(o))\nnet(x)\nprint(kept)\n",
]


@pytest.mark.parametrize("text", INSIDE)
def test_what_may_be_a_part_of_a_wrapped_model_is_taken_for_one(text: str) -> None:
    assert hazards(text) != []
