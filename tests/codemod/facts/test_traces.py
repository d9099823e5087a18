"""When the forward of a model is proven to leave no traces, and the first thing that speaks against it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from dp2ddp.codemod.facts import gather_facts
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import Project
from tests.codemod.scripts import facts_of

SCRIPT = """
import functools, logging, math, os, random, time, warnings
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

seen = []
count = 0
logger = logging.getLogger()


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        ctx.save_for_backward(x)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.scale * gradient, None


def swish(x):
    return x * torch.sigmoid(x)


class Meter:
    def observe(self, x):
        self.seen = x

    def __getitem__(self, x):
        self.seen = x
        return x


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.bn = nn.BatchNorm1d(width)

    def forward(self, x):
        return F.relu(self.bn(self.fc(x)), inplace=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(8) for _ in range(3)])
        self.rnn = nn.LSTM(8, 8)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("table", torch.zeros(4, 8))
        self.scale = nn.Parameter(torch.ones(8))
        self.steps, self.history, self.log = 0, [], print
        self.meter = Meter()

    def helper(self, x):
        return x

    def forward(self, x, mask=None):
{body}
        return x


net = nn.DataParallel(Net())
for x, y in loader:
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
{behind}
"""


def trace(body: str, behind: str = "", **modules: str) -> str | None:
    body = textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)
    return facts_of(SCRIPT.format(body=body, behind=behind), **modules).forward_trace


COMPUTES = [
    "x = self.drop(self.blocks[0](x))",
    "for block in self.blocks:\n    x = block(x) + x",
    "x += self.scale\nx = x.view(x.size(0), -1)",
    "outs = []\nfor block in self.blocks:\n    outs.append(block(x))\nx = torch.cat(outs, dim=1)",
    "x = x * torch.rand_like(x) / math.sqrt(x.size(1)) * np.sqrt(2)",
    "x = x.clone()\nx[mask] = 0\nx.clamp_(min=0)",
    "self.rnn.flatten_parameters()\nx, (h, c) = self.rnn(x)",
    "x = swish(self.helper(x))",
    "x = Reverse.apply(x, 0.5)",
    "with torch.no_grad():\n    n = x.norm(dim=1, keepdim=True)\nx = x / n",
    "if self.training:\n    x = F.dropout(x, 0.5, True)",
    "assert x.dim() == 2, 'got %s' % (tuple(x.shape),)",
    "mask = torch.zeros(x.shape, device=x.device)\nmask[:, 0] = 1\nx = x + mask",
    "f = lambda v: v * 2\nx = f(x)",
    "found = {'x': x}\nfound['y'] = x.sum(1)\nx = found['y'] + found.get('x')[:, 0]",
    "x = x + self.table[: x.size(0)]",
    "for i in range(3):\n    layer = getattr(self, 'stage%d' % i)\n    x = layer(x)",
    "x = getattr(self, f'stage{x.dim()}')(x)",
    "for i in range(3):\n    x = self.blocks[i](x)",
    "x = (self.drop if self.training else self.rnn)(x)",
    "x = x.half().to(self.scale.dtype)\nw = self.scale.cuda()",
    "x = super().forward(x)",
    "x = self.__getattr__(head)(x)",
    "outs = list()\nfor block in self.blocks:\n    outs.append(block.bn.weight)\nx = x + outs[0]",
    "raise_if = x.isnan().any()\nif raise_if:\n    raise ValueError('nan')",
]
LEAVES = {
    "self.steps += 1": "changes `self.steps`",
    "self.last = x": "sets `self.last`",
    "self.blocks[0].seen = x": "sets `self.blocks[0].seen`",
    "self.history.append(x)": "changes `self.history`",
    "history = self.history\nhistory.append(x)": "changes `history`",
    "self.table[0] = x.mean(0)": "changes `self.table`",
    "with torch.no_grad():\n    self.table.mul_(0.9)": "changes `self.table`",
    "w = self.scale.data\nw.clamp_(0, 1)": "changes `w`",
    "F.relu(self.table, inplace=True)": "changes `self.table`",
    "torch.add(x, 1, out=self.table)": "changes `self.table`",
    "seen.append(x)": "changes `seen`",
    "global count\ncount += 1": "changes `count`",
    "print(x.shape)": "`print` may do more",
    "self.log(x.shape)": "`self.log` may do more",
    "logger.info(x.shape)": "`logger.info` may do more",
    "warnings.warn('x')": "`warnings.warn` may do more",
    "t = time.time()": "`time.time` may do more",
    "n = len(list(self.blocks[0].parameters()))": "parameters` may do more",
    "assert isinstance(self.scale, nn.Parameter)": "no nn.Parameter",
    "x = checkpoint(self.blocks[0], x)": "`checkpoint` may do more",
    "F.batch_norm(x, self.table[0], self.table[1], training=True)": "`F.batch_norm` may do more",
    "x = nn.Linear(8, 8)(x)": "`nn.Linear(8, 8)` may do more",
    "x = Block(8)(x)": "`Block(8)` may do more",
    "setattr(self, 'last', x)": "`setattr`",
    "torch.save(x, 'x.pt')": "`torch.save` may do more",
    "torch.manual_seed(0)": "`torch.manual_seed` may do more",
    "x.register_hook(seen.append)": "`x.register_hook` may do more",
    "del self.last": "deletes",
    "self.tracker.update(x)": "changes `self.tracker`",
    "self.writer.add_scalar('x', x.mean())": "`self.writer.add_scalar` may do more",
    "x = getattr(self, mode)(x)": "`getattr(self, mode)` may do more",
    "x = getattr(self, 'help' + mode)(x)": "may do more",
    "act = getattr(self, mode)\nx = act(x)": "`act` may do more",
    "x = ACTS[self.mode](x)": "`ACTS[self.mode]` may do more",
    "x = make()(x)": "`make()` may do more",
    "self.eval()": "`self.eval` may do more",
    "self.drop.eval()": "`self.drop.eval` may do more",
    "self.to('cpu')": "`self.to` may do more",
    "self.blocks[0].half()": "`self.blocks[0].half` may do more",
    "for part in self.modules():\n    part.train()": "may do more",
    "self.zero_grad()": "`self.zero_grad` may do more",
    "self.apply(print)": "`self.apply` may do more",
    "x.mean().backward()": "backward` may do more",
    "x.map_(x, print)": "`x.map_` may do more",
    "os.environ['A'] = '1'": "changes `os.environ`",
    "type(self).count = 1": "sets `type(self).count`",
    "torch.backends.cudnn.benchmark = True": "sets `torch.backends.cudnn.benchmark`",
    "x = self.made_elsewhere(x)": "`self.made_elsewhere` may do more",
    "self.meter.observe(x)": "replicas share",
    "x = self.meter[x]": "replicas share",
    "self.__dict__['last'] = x": "changes `self.__dict__`",
    "x = x + random.random()": "random streams of the host",
}


@pytest.mark.parametrize("body", COMPUTES)
def test_a_forward_that_only_computes_leaves_no_trace(body: str) -> None:
    assert trace(body) is None


@pytest.mark.parametrize(("body", "why"), LEAVES.items())
def test_a_forward_leaves_traces(body: str, why: str) -> None:
    found = trace(body)
    assert found is not None
    assert why in found


def test_pruning_sets_weights_in_each_forward() -> None:
    """Under DataParallel on the replicas, whose weights nobody reads again: the next round prunes by old ones."""
    behind = "from torch.nn.utils import prune\nprune.l1_unstructured(net.module.blocks[0].fc, 'weight', 0.2)"
    assert "pruning sets weights anew" in str(trace("x = self.drop(x)", behind))


NORMED = "nn.utils.spectral_norm(net.module.blocks[0].fc)\n"


@pytest.mark.parametrize(
    ("behind", "leaves"),
    [
        ("print(net.module.blocks[0].fc.weight.norm())", True),
        (
            "nn.init.zeros_(net.module.blocks[0].fc.weight)\nnet.module.blocks[0].fc.weight.data[:4].normal_()",
            False,
        ),
        ("", False),
    ],
)
def test_normed_weights_that_are_read_are_those_of_before_the_wrap(behind: str, leaves: bool) -> None:
    assert ("spectral_norm sets weights anew" in str(trace("x = self.drop(x)", NORMED + behind))) == leaves


def test_the_place_is_told() -> None:
    assert (trace("self.last = x") or "").endswith("(line 64)")


@pytest.mark.parametrize(
    ("behind", "why"),
    [
        ("Net.forward = other", "a forward is replaced"),
        ("exec(open('more.py').read())", "brings code that is not read"),
        ("import importlib\nimportlib.import_module(name)", "brings code that is not read"),
        ("net = torch.hub.load('a/b', 'c')", "brings code that is not read"),
    ],
)
def test_code_that_is_not_read_may_leave_traces(behind: str, why: str) -> None:
    assert why in (trace("x = x + 1", behind) or "")


def test_modules_loaded_by_name_from_a_package_of_the_project_are_read() -> None:
    behind = "import importlib\nimportlib.import_module('models.' + name)"
    assert trace("x = x + 1", behind, models="") is None


@pytest.mark.parametrize("method", ["__getattr__", "__setattr__", "__call__"])
def test_attributes_and_calls_of_a_modules_own_may_leave_traces(method: str) -> None:
    text = SCRIPT.format(body="        x = x + 1", behind="")
    text = text.replace(
        "    def helper(self, x):", f"    def {method}(self, *x):\n        pass\n\n    def helper(self, x):"
    )
    assert f"its class has a {method} of its own" in (facts_of(text).forward_trace or "")


def test_decorators_of_forwards_are_known_or_speak_against_it() -> None:
    text = SCRIPT.format(body="        x = x + 1", behind="")
    for decorator, is_known in (("torch.no_grad()", True), ("functools.lru_cache", False), ("logged", False)):
        found = facts_of(
            text.replace("    def forward(self, x, mask", f"    @{decorator}\n    def forward(self, x, mask")
        )
        assert (found.forward_trace is None) is is_known


def test_what_is_looked_at_lies_in_other_files_too() -> None:
    text = "import torch\nfrom parts import Net\nnet = torch.nn.DataParallel(Net())\n"
    part = (
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        {}\n        return x\n"
    )
    assert facts_of(text, parts=part.format("x = x * 2")).forward_trace is None
    found = facts_of(text, parts=part.format("self.x = x")).forward_trace
    assert found is not None
    assert "parts.py, line 4" in found


UNREAD = "import torch\nimport {}, wandb\nnet = torch.nn.DataParallel({}.Net())\n"


def test_what_was_not_found_may_have_layers_unless_it_is_a_known_library() -> None:
    script = SourceFile(Path("train.py"), UNREAD.format("resnet", "resnet"))
    for missing, why in (
        (("wandb",), None),
        (("resnet", "wandb"), "`resnet` was not read, and may have layers"),
    ):
        assert gather_facts(Project(script, missing=missing)).forward_trace == why


def test_files_that_are_no_python_may_have_layers() -> None:
    found = facts_of(UNREAD.format("resnet", "resnet"), resnet="def (:\n").forward_trace
    assert found == "`resnet.py` was not read, and may have layers"


def test_a_script_from_stdin_stands_alone() -> None:
    assert facts_of(UNREAD.format("torchvision", "torchvision")).forward_trace is None
    assert "`resnet` was not read" in (facts_of(UNREAD.format("resnet", "resnet")).forward_trace or "")


def test_a_model_that_comes_from_nowhere_may_have_layers() -> None:
    assert "`net` was not read" in (
        facts_of("import torch\nnet = torch.nn.DataParallel(net)\n").forward_trace or ""
    )


def test_a_class_with_a_forward_and_unknown_bases_may_be_part_of_a_model() -> None:
    text = SCRIPT.format(
        body="        x = x + 1", behind="class Odd(base()):\n    def forward(self, x):\n        pass\n"
    )
    assert "Odd has a forward, and may be part of a model" in (facts_of(text).forward_trace or "")


@pytest.mark.parametrize("given", ["lambda x: print(x)", "shown", "print"])
def test_functions_that_are_set_on_a_module_are_looked_at(given: str) -> None:
    text = SCRIPT.format(body="        x = self.act(x)", behind="")
    text = text.replace(
        "self.drop = nn.Dropout(0.1)", f"self.drop = nn.Dropout(0.1)\n        self.act = {given}"
    )
    text = text.replace("def swish(x):", "def shown(x):\n    print(x)\n\n\ndef swish(x):")
    assert "may do more than compute" in (facts_of(text).forward_trace or "")
    harmless = text.replace(f"self.act = {given}", "self.act = swish")
    assert facts_of(harmless).forward_trace is None


def test_a_model_out_of_a_file_may_have_layers_of_any_class() -> None:
    text = "import torch\nnet = torch.load('net.pt')\nnet = torch.nn.DataParallel(net.cuda())\n"
    for one in (text, text.replace("(net.cuda())", "(torch.load('net.pt'))")):
        assert "`torch.load('net.pt')` was not read" in (facts_of(one).forward_trace or "")


@pytest.mark.parametrize(
    ("bases", "heir", "leaves"),
    [
        ("", "", False),
        ("(object)", "", False),
        ("(abc.ABC)", "", False),
        ("(Elsewhere)", "", True),
        ("(Plain)", "", False),
        ("", "class Both(Trainer, nn.Module):\n    pass\n", True),
    ],
)
def test_a_trainer_with_a_forward_is_no_part_of_a_model(bases: str, heir: str, leaves: bool) -> None:
    trainer = f"class Trainer{bases}:\n    def forward(self, x):\n        self.out = net(x)\n\n{heir}"
    behind = f"import abc\nfrom timm import Elsewhere\nclass Plain:\n    pass\n\n{trainer}"
    assert (trace("x = x + 1", behind) is not None) is leaves
