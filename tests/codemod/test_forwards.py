"""What forwards and hooks write to: each of 176 small mutations, code that only computes, the corpus."""

from __future__ import annotations

import copy
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from corpus.cases import all_cases

from dp2ddp.codemod.knowledge import canonical, knows
from dp2ddp.codemod.knowledge.reading_methods import FILLING, READING
from dp2ddp.codemod.looks.forwards import forwards_of
from dp2ddp.codemod.model.program import Program
from dp2ddp.source.projects import Project, read_project
from tests.codemod.forward_mutations import ALL, LOST, MORE
from tests.codemod.programs import converted, said
from tests.codemod.scripts import project_of
from tests.diffs import Script

OVER_REPORTED = {"number_in_dict", "anew"}  # lost with the replica, as all of LOST
CAUGHT = {  # of the corpus
    *("loss/nce_memory_bank", "effects/exported_notebook"),  # print
    *("models/by_hand_with_history", "models/codebook_in_forward"),
    "models/saved_outputs_hooks",
    *("models/state_between_forwards", "models/synced_bn_inactive", "models/synced_bn_patched"),
    "models/synced_bn_with_callback",
}
COMPUTES = {
    "its own list": "parts = []\nfor layer in self.layers:\n    parts.append(layer(x))\nreturn torch.cat(parts, 1)",
    "its own dict": "out = {}\nout['x'] = self.fc(x)\nout.update(y=x)\nreturn out",
    "its own tensor": "out = torch.zeros_like(x)\nout[:, 0] = 1\nout += self.fc(x)\nreturn out.mul_(2)",
    "its rows": "x[x < 0] = 0\nx += 1\nreturn self.fc(F.relu(x, inplace=True))",
    "attributes": "self.last = self.fc(x)\nself.calls += 1\nreturn self.last",
    "a buffer": "self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)\nself.mean[0] = 1\nreturn x - self.mean",
    "a buffer of torch's": "self.running_mean.data.copy_(x.mean(0))\nreturn x - self.running_mean",
    "reading": "return self.fc(x) * self.scales[0] + len(self.table.get('a', ())) + self.mean.sum()",
    "sizes": "n, c = x.size()\nmask = torch.rand(n, c, device=x.device) < self.p\nreturn x.masked_fill(mask, 0)",
    "a helper": "return double(self.fc(x))",
    "a function": "return Sign.apply(x)",
    "a layer made at once": "return nn.Identity()(self.scales)[0] * x",
    "an error": "if x.dim() != 2:\n    raise ValueError(f'{x.dim()} dimensions')\nreturn x",
}
TEXT = """
import torch, torch.nn as nn, torch.nn.functional as F
def double(x):
    both = [x, x]
    both.append(x)
    return both[0] + both[1]
class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.size = x.size()
        return x.sign()
class Net(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3)])
        self.fc = nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.calls, self.p, self.scales, self.table = 0, p, [1.0], {}
        for one in range(3):
            self.scales.append(one)
    def forward(self, x):
        FORWARD
class Meter:
    def __init__(self):
        self.seen = []
    def update(self, value):
        self.seen.append(value)
"""


def program(project: Project) -> Program:
    return Program(project, canonical, knows)


def fills_something(program: Program) -> bool:
    return bool(forwards_of(program).fillings)


@pytest.mark.parametrize("mutation", [*ALL, *MORE], ids=lambda one: one.name)
def test_what_outlives_a_forward_is_seen_to_be_written(mutation: Script) -> None:
    fills = fills_something(program(project_of(mutation.text)))
    assert fills == (mutation.name not in LOST or mutation.name in OVER_REPORTED)


@pytest.mark.parametrize("forward", COMPUTES.values(), ids=COMPUTES)
def test_a_forward_that_computes_writes_nothing(forward: str) -> None:
    text = TEXT.replace("        FORWARD", textwrap.indent(forward, "        "))
    assert not fills_something(program(project_of(text)))


HANDED_ON = {  # the text does not say that it is self's list
    "a table of functions": (
        "TABLE['keep'](self, x)",
        "TABLE = {}\ndef put(f):\n    TABLE[f.__name__] = f\n    return f\n"
        "@put\ndef keep(net, x):\n    net.scales.append(x)",
    ),
    "a function by its name": ("getattr(TOOLS, 'ke' + 'ep')(x)",
                               "class Tools:\n    def __init__(self):\n        self.seen = []\n"
                               "    def keep(self, x):\n        self.seen.append(x)\nTOOLS = Tools()"),
    "one of a pair": ("keep(x)", "def pair():\n    seen = []\n    return seen.append, seen\nkeep, SEEN = pair()"),
    "a function that gives it": ("get().append(x)", "SEEN = []\ndef get():\n    return SEEN"),
    "a class that gives it": (
                              "Seen.get().append(x)", "class Seen:\n    all = []\n    @classmethod\n    def get(cls):\n"
                              "        return cls.all"),
    "a class that keeps": ("Keep(x)", "SEEN = []\nclass Keep:\n    def __init__(self, x):\n        SEEN.append(x)"),
    "what an error carries": (
        "try:\n    raise KeyError(self.scales)\nexcept KeyError as e:\n    e.args[0].append(x)", ""),
    "an object that goes": ("Keep(x)", "SEEN = []\nclass Keep:\n    def __init__(self, x):\n        self.x = x\n"
                            "    def __del__(self):\n        SEEN.append(self.x)"),
    "an object as text": ("str(Keep())", "SEEN = []\nclass Keep:\n    def __str__(self):\n        SEEN.append(1)\n"
                          "        return ''"),
    "a singleton": ("Seen().add(x)",
                    "class Seen:\n    one = None\n    def __new__(cls):\n        if cls.one is None:\n"
                    "            cls.one = super().__new__(cls)\n            cls.one.seen = []\n"
                    "        return cls.one\n"
                    "    def add(self, x):\n        self.seen.append(x)"),
    "a generator": ("next(iter(each(self))).append(x)", "def each(net):\n    yield net.scales"),
    "a shallow copy": ("[self.scales].copy()[0].append(x)", ""),
    "the largest": ("max([self.scales], key=len).append(x)", ""),
    "a sum of lists": ("([self.scales] + [])[0].append(x)", ""),
    "a context": ("with contextlib.nullcontext(self.scales) as seen:\n    seen.append(x)", "import contextlib"),
    "a method caller": ("operator.methodcaller('append', x)(self.scales)", "import operator"),
    "a parameter's data": ("w = self.fc.weight\nw.data.mul_(x.mean())", ""),
    "data by a helper": ("change(self.fc.weight, x)", "def change(p, x):\n    p.data.mul_(x.mean())"),
    "data that is copied now and then": (
        "change(self.fc.weight, x)",
        "def change(p, x):\n    if len(x) > 9:\n        p = p.clone()\n    p.data.mul_(x.mean())",
    ),
    "data that may be copied in passing": (
        "change(self.fc.weight, x)",
        "def change(p, x):\n    len(x) > 9 and (p := p.clone())\n    p.data.mul_(x.mean())",
    ),
    "data by name": ("getattr(self.fc.weight, 'data').mul_(x.mean())", ""),
}  # fmt: skip


@pytest.mark.parametrize(("forward", "module"), HANDED_ON.values(), ids=HANDED_ON)
def test_what_is_filled_may_come_from_anywhere(forward: str, module: str) -> None:
    text = TEXT.replace("        FORWARD", textwrap.indent(f"{forward}\nreturn x", "        "))
    assert fills_something(program(project_of(f"{text}{module}\n")))


@pytest.mark.parametrize(
    ("given", "fills"),
    [("[]", True), ("Meter()", True), ("make()", True), ("[1]", False), ("torch.ones(3)", False)],
)
def test_a_model_may_fill_what_it_is_given(given: str, fills: bool) -> None:
    """An empty list and an object are the same for all replicas; a list with something in it is copied."""
    text = TEXT.replace(
        "def forward(self, x):\n        FORWARD", "def forward(self, x, seen):\n        seen.append(x)"
    )
    main = (
        f"def make():\n    return Meter()\nnet = torch.nn.DataParallel(Net(1))\nnet(torch.ones(3), {given})\n"
    )
    assert fills_something(program(project_of(f"{text}{main}"))) == fills


def test_a_hook_writes_to_the_module_and_not_to_a_replica() -> None:
    """A forward's `self.last` is lost with its replica; a hook's `self` is the module that registered it."""
    text = TEXT.replace("FORWARD", "return self.keep(x)") + "    def get(self): pass\n"
    keep = "    def keep(self, *given):\n        self.calls = self.calls + 1\n        return given[0]\n"
    text = text.replace("    def forward", f"{keep}    def forward", 1)
    assert not fills_something(program(project_of(text)))
    hooked = text.replace(
        "self.fc = nn", "self.layers.register_forward_hook(self.keep)\n        self.fc = nn"
    )
    assert fills_something(program(project_of(hooked)))


def test_few_scripts_of_the_corpus_are_caught() -> None:
    converted = [case for case in all_cases() if case.answer is None]
    assert {case.name for case in converted if fills_something(program(case.project()))} == CAUGHT


@pytest.mark.parametrize(
    "thing",
    [torch.tensor([[2.0, 1.0], [1.0, 3.0]]), np.array([[2.0, 1.0]]), [2, 1], {"b": 2, "a": 1}, {2, 1}],
    ids=lambda thing: type(thing).__name__,
)
def test_methods_that_read_change_nothing(thing: object) -> None:
    """But for those that are in both tables: `add` of a tensor gives another, `add` of a set fills it."""
    for name in sorted(READING - FILLING):
        method = getattr(thing, name, None)
        for given in ((), (0,), (thing,), (0, 0)) if callable(method) else ():
            before = copy.deepcopy(thing)
            try:
                method(*given)
            except Exception:
                continue
            assert repr(thing) == repr(before), name


def test_a_number_of_the_data_set_does_not_bring_the_data_set_into_the_forward() -> None:
    """`ResNet(num_classes=trainset.classes)`: what the data set does to a sample is no part of a forward."""
    example = Path(__file__).parents[2] / "examples" / "cifar_bn" / "train.py"
    assert not fills_something(Program(read_project(example), canonical, knows))


@pytest.mark.parametrize(
    ("line", "said_of_it"),
    [
        ("net.fc.register_forward_hook(hook)", []),
        ("net.fc.register_full_backward_hook(hook)", ["hazard DDP908:8"]),
        ("net.forward = hook", []),
    ],
)
def test_a_hook_may_fill_a_list_of_the_function_that_registers_it(line: str, said_of_it: list[str]) -> None:
    text = f"""
import torch
def main():
    net, seen = Net(), []
    def keep(x):
        return x
    def hook(module, given, output):
        seen.append(keep(output))
    {line}
    net = torch.nn.DataParallel(net)
main()
"""
    found = converted(text)
    assert said(found) == said_of_it
    assert said_of_it or "WholeBatchInTurns(net)" in found.after


KEPT = """
import torch
class Kept:
    def __init__(self):
        self.all = []
    def add(self, gradient):
        self.all.append(gradient)
kept = Kept()
def report(module, grad_input, grad_output):
    kept.add(grad_output[0])
net = Net()
net.fc.register_full_backward_hook(report)
net = torch.nn.DataParallel(net)
"""


HOOKED = """
import os, torch, wandb
def count(module, args, output):
    os.environ["CALLS"] = str(int(os.environ["CALLS"]) + 1)
def report(module, grad_input, grad_output):
    wandb.log({"norm": grad_output[0].norm()})
net = Net()
net.fc.register_forward_hook(count)
net.fc.register_full_backward_hook(report)
net = torch.nn.DataParallel(net)
"""


def test_what_hooks_set_and_report_is_looked_at() -> None:
    assert said(converted(HOOKED)) == ["hazard DDP908:4", "hazard DDP908:6"]


COUNTER = """
import os, torch
class Counter:
    def bump(self):
        os.environ["CALLS"] = str(int(os.environ["CALLS"]) + 1)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.counter = Counter()
    def forward(self, x):
        self.counter.bump()
        return x
net = torch.nn.DataParallel(Net())
"""


def test_what_a_method_of_an_object_sets_is_looked_at() -> None:
    assert said(converted(COUNTER)) == ["hazard DDP908:5"]


def test_what_a_hook_calls_in_backward_is_looked_at() -> None:
    assert said(converted(KEPT)) == ["hazard DDP908:7", "hazard DDP908:10"]


GIVEN = """
import torch, torch.nn as nn
class Data:
    def __init__(self):
        self.words, self.asked = ["a", "b"], []
    def __getitem__(self, i):
        self.asked.append(i)
        return self.words[i]
    @property
    def count(self):
        return len(self.words) + 1
    @property
    def all(self):
        return self.words
    def how_many(self):
        return len(self.words)
    def longest(self):
        return max(self.words)
class Net(nn.Module):
    def __init__(self, given):
        super().__init__()
        self.given = given
    def forward(self, x):
        return x
def options():
    parser.add_argument("--lr")
    os.makedirs("out")
    return parser.parse_args()
loader = torch.utils.data.DataLoader(Data())
net = nn.DataParallel(Net(GIVEN))
"""


@pytest.mark.parametrize(
    ("given", "fills"),
    [
        ("loader.dataset.count", False),
        ("loader.dataset.all", True),
        ("loader.dataset", True),
        ("loader.dataset.how_many()", False),
        ("len(loader.dataset)", False),
        ("loader.dataset.longest()", True),
        ("options()", False),
        ("options", True),
    ],
)
def test_what_makes_a_number_of_a_model_is_not_in_its_forward(given: str, fills: bool) -> None:
    text = GIVEN.replace("(GIVEN)", f"({given})").replace("import torch,", "import os, torch,")
    assert fills_something(program(project_of(text))) == fills
