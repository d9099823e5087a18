"""What forwards and hooks write to: each of 176 small mutations, other ways, code that only computes, the corpus."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from corpus.cases import all_cases

from dp2ddp.codemod.knowledge.reading_methods import FILLING, READING
from dp2ddp.codemod.looks.filling import fillings
from dp2ddp.codemod.model.program import Program
from dp2ddp.source.projects import Project, read_project
from tests.codemod.forward_mutations import ALL, FOLDER, LOST, MORE
from tests.codemod.programs import converted, said
from tests.codemod.scripts import project_of
from tests.diffs import Script, cases

OVER_REPORTED = {"number_in_dict", "anew"}  # lost with the replica, as all of LOST
CAUGHT = {  # of the corpus
    *("loss/nce_memory_bank", "effects/exported_notebook"),  # print
    *("models/by_hand_with_history", "models/codebook_in_forward"),
    "models/saved_outputs_hooks",
    *("models/state_between_forwards", "models/synced_bn_inactive", "models/synced_bn_patched"),
    "models/synced_bn_with_callback",
}


def program(project: Project) -> Program:
    return Program(project)


def fills_something(program: Program) -> bool:
    return bool(fillings(program))


@pytest.mark.parametrize("mutation", [*ALL, *MORE], ids=lambda one: one.name)
def test_what_outlives_a_forward_is_seen_to_be_written(mutation: Script) -> None:
    fills = fills_something(program(project_of(mutation.text)))
    assert fills == (mutation.name not in LOST or mutation.name in OVER_REPORTED)


@pytest.mark.parametrize("script", cases(FOLDER / "computes.diff"), ids=lambda script: script.name)
def test_what_a_forward_fills_may_come_from_anywhere_and_what_only_computes_fills_nothing(
    script: Script,
) -> None:
    assert fills_something(program(project_of(script.body))) == ("fills" in script.said)


KERNEL = """
import sys, torch, torch.nn as nn
import sigmoid_ext
from . import built
KEPT = torch.zeros(3)
class Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, scales):
        ctx.given, y = [x.new(), weight], torch.empty_like(x)
        KERNEL(x, weight, ctx.given[0], y)
        return y
sigmoid = Sigmoid.apply
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.scales = nn.Parameter(torch.ones(3)), [1.0]
    def forward(self, x):
        return sigmoid(x, self.weight, self.scales)
"""


@pytest.mark.parametrize(
    ("kernel", "fills"),
    [
        ("sigmoid_ext.run", False),
        ("built.ops.run", False),  # of a local module without a file: it is built
        ("print", True),
        ("sys.stdout.writelines", True),
        ("KEPT.index_add_", True),
        ("scales.append", True),
    ],
)
def test_an_extension_computes_in_a_function_of_autograd(kernel: str, fills: bool) -> None:
    assert fills_something(program(project_of(KERNEL.replace("KERNEL(", f"{kernel}(")))) == fills


SUMS = """
import torch, torch.nn as nn
class Sum(nn.Module):
    def forward(self, parts, x):
        parts.append(x)
        return sum(parts)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.adder = Sum()
    def forward(self, x):
        parts = []
        for layer in self.children():
            FILL
        return self.adder(parts, x)
"""


@pytest.mark.parametrize(
    ("fill", "fills"), [("parts.append(x)", False), ("pass", True), ("if x.sum(): parts.append(x)", True)]
)
def test_a_list_with_something_in_it_is_copied_for_each_replica(fill: str, fills: bool) -> None:
    """Of `self.adder` the text does not tell that there is no DataParallel around it."""
    assert fills_something(program(project_of(SUMS.replace("FILL", fill)))) == fills


EQUALIZED = """
import torch.nn as nn
class Equalized:
    def __init__(self, name):
        self.name = name
    def __call__(self, module, given):
        setattr(module, self.name, getattr(module, self.name + "_orig") * 2)
def keep(module, given, output):
    LINE
class Log:
    def update(self, line):
        self.lines = line
class Other:
    def update(self, line):
        print(line)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.log, self.seen = nn.Linear(3, 3), Log(), []
        self.fc.register_forward_pre_hook(Equalized("weight"))
        self.fc.register_forward_hook(keep)
        hook = Equalized("bias")
        self.fc.register_forward_pre_hook(hook)
"""


@pytest.mark.parametrize(
    ("line", "fills"),
    [
        ("module.last = output", False),
        ("setattr(module, 'last', output)", False),
        ("module.seen.append(output)", True),
        ("setattr(output, 'last', module)", True),
        ("Log.update(module, 1)", True),
        ("Other.update(module, 1)", True),
    ],
)
def test_what_a_hook_sets_on_the_module_that_it_is_given_is_the_replicas(line: str, fills: bool) -> None:
    assert fills_something(program(project_of(EQUALIZED.replace("LINE", line)))) == fills


BY_TEXT = """
import sys
import torch.nn as nn
class Block(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.seen, self.fc1, self.block = how, [], nn.Linear(3, 3), nn.ModuleList([Block(how)])
    def run1(self, x):
        self.seen.append(x)
    def forward(self, x):
        LINE
"""


@pytest.mark.parametrize(
    ("line", "fills"),
    [
        ("getattr(self, 'run1')(x)", True),
        ("getattr(self, f'run{len(x)}')(x)", True),
        ("run = getattr(self, 'run%d' % len(x)); run(x)", True),
        ("getattr(self, self.how)(x)", True),
        ("type(self).__dict__['run' + self.how](self, x)", True),
        ("getattr(self.block[0], 'run{}'.format(self.how))(x)", True),
        ("run = getattr(self.block[0], self.how); run(x)", True),
        ("getattr(self, 'fc%d' % len(x))(x)", False),
        ("getattr(nn.functional, self.how)(x)", False),
        ("getattr(sys.modules[__name__], self.how).last", False),
        ("kinds = sys.modules[self.how]; getattr(kinds, self.how).last", False),
        ("kinds = sys.modules.get(self.how, self.block[0]); getattr(kinds, self.how).last", True),
        ("kinds = self.block[0] if x else sys.modules[__name__]; getattr(kinds, self.how).last", True),
    ],
)
def test_a_method_that_a_text_may_name_runs_in_the_forward(line: str, fills: bool) -> None:
    assert fills_something(program(project_of(BY_TEXT.replace("LINE", line)))) == fills


BASES = """
import torch.nn as nn
class Quiet(nn.Module):
    def forward(self, x):
        return x
class Loud:
    def forward(self, x):
        print(x)
class Net(Quiet):
    def forward(self, x):
        return BASE.forward(self, x)
"""


def test_a_method_of_a_class_is_that_of_its_own_base() -> None:
    """`Quiet.forward` prints nothing, though another class has a `forward` that does."""
    assert not fills_something(program(project_of(BASES.replace("BASE", "Quiet"))))
    assert fills_something(program(project_of(BASES.replace("BASE", "Loud"))))


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
    assert not fills_something(Program(read_project(example)))


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
    conversion = converted(HOOKED)
    assert said(conversion) == ["hazard DDP908:6"]  # backward has no turns
    assert "WholeBatchInTurns(" in conversion.entry.after


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
    conversion = converted(COUNTER)
    assert not conversion.hazards
    assert "WholeBatchInTurns(" in conversion.entry.after


def test_what_a_hook_calls_in_backward_is_looked_at() -> None:
    assert said(converted(KEPT)) == ["hazard DDP908:7", "hazard DDP908:10"]
