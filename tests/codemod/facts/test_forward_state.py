"""What a forward leaves for the next one: seen, and told from caches and from what is lost on a replica."""

from __future__ import annotations

import pytest

from tests.codemod.scripts import facts_of

NET = """
import argparse, itertools, random
import numpy as np
import torch
class Meter:
    def __init__(self):
        self.n = 0
    def step(self):
        self.n += 1
        return self.n
class Net(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)
        self.cfg = cfg
        self.state = MADE
    def forward(self, x):
        BODY
        return x
net = torch.nn.DataParallel(Net(cfg))
"""


def kept(made: str, *body: str) -> list[tuple[str, bool]]:
    text = NET.replace("MADE", made).replace("BODY", "\n        ".join(body))
    return [(one.name, one.is_reached) for one in facts_of(text).forward_state]


@pytest.mark.parametrize(
    ("made", "body"),
    [
        pytest.param("{'n': 0}", ["self.state['n'] += 1", "x = x / self.state['n']"], id="a counter in a dict"),
        pytest.param("[]", ["self.state += [x]", "x = x + len(self.state)"], id="a list that grows"),
        pytest.param("np.zeros(3)", ["self.state += x.sum(0).numpy()", "x = x / self.state.sum()"], id="an array"),
        pytest.param("torch.zeros(3)", ["x = x - self.state", "self.state.mul_(0.9).add_(x.mean(0))"], id="a tensor"),
        pytest.param("torch.zeros(3)", ["x = x - self.state", "self.state[0] = x.mean()"], id="a part of a tensor"),
        pytest.param("Meter()", ["x = x / self.state.step()"], id="an object"),
        pytest.param("{}", ["x = x + self.state.get('h', 0)", "self.state['h'] = x"], id="read before it is set"),
        pytest.param("[torch.zeros(3)]", ["found = []", "found.append(self.state[0])", "found[-1].add_(1)",
                                          "x = x - self.state[0]"], id="by way of a list"),
        pytest.param("torch.zeros(3)", ["found = {}", "found['s'] = self.state", "for one in found.values():",
                                        "    one.add_(1)", "x = x - self.state"], id="by way of a dict"),
        pytest.param("[torch.zeros(3)]", ["found = []", "found += self.state", "found[0] += 1",
                                          "x = x - self.state[0]"],
                     id="an item of a list that grows"),
        pytest.param("{}", ["if 'm' not in self.state:", "    self.state['m'] = x.mean()", "x = x - self.state['m']"],
                     id="statistics of the first batch"),
    ],
)  # fmt: skip
def test_what_the_next_forward_sees_is_kept(made: str, body: list[str]) -> None:
    assert ("self.state", True) in kept(made, *body)


@pytest.mark.parametrize(
    ("made", "line"),
    [
        pytest.param("itertools.cycle([1, 2])", "next(self.state)", id="an iterator"),
        pytest.param("iter(range(9))", "next(self.state)", id="iter"),
    ],
)
def test_what_cannot_be_read_cannot_be_carried(made: str, line: str) -> None:
    assert kept(made, f"x = x * {line}") == [("self.state", False)]


def test_settings_that_a_forward_changes_are_kept() -> None:
    body = ("self.cfg.t = 0.9 * self.cfg.t", "x = x / self.cfg.t")
    assert kept("None", *body) == [("self.cfg", True)]


@pytest.mark.parametrize("name", ["Net.n", "type(self).n", "self.__class__.n"])
def test_attributes_of_a_class_cannot_be_carried(name: str) -> None:
    assert kept("None", f"{name} += 1", "x = x / self.n") == [(name, False)]


@pytest.mark.parametrize(
    ("made", "body"),
    [
        pytest.param("{}", ["n = x.shape[1]", "if n not in self.state:",
                            "    self.state[n] = torch.arange(n, device=x.device)", "x = x + self.state[n]"],
                     id="a cache by the shape"),
        pytest.param("{}", ["self.state['h'] = x", "x = x + self.state['h']"], id="set and then read"),
        pytest.param("[]", ["self.state = []", "self.state.append(x)", "x = sum(self.state)"], id="set anew"),
        pytest.param("0", ["self.state += 1", "x = x / self.state"], id="a number, lost on a replica"),
        pytest.param("[]", ["self.state.append(1)"], id="written only"),
        pytest.param("torch.zeros(3)", ["found = [self.state]", "found.append(x)", "x = x + self.state + len(found)"],
                     id="put into a list that then grows"),
        pytest.param("torch.zeros(3)", ["found = []", "for k in range(2):", "    found.append(self.state)",
                                        "found[0] = x", "x = x + self.state"], id="put into a list, and out of it"),
        pytest.param("None", ["self.fc.last = x"], id="set on a part, lost on a replica"),
    ],
)  # fmt: skip
def test_what_no_forward_sees_of_another_is_not(made: str, body: list[str]) -> None:
    assert kept(made, *body) == []


ATTENTION = """
import torch
class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('step', torch.zeros(1))
        self.seen = MADE
    def start(self, x):
        self.seen = SET
    def forward(self, x, t):
        self.step += 1
        if t == 0:
            self.start(x)
        self.seen += x
        return x * self.seen
    def reset(self):
        self.step = self.step.new_tensor(1)
net = torch.nn.DataParallel(Attention())
print(net.module.step)
"""


@pytest.mark.parametrize(
    ("made", "given", "found"),
    [
        ("None", "torch.zeros(2, 3)", []),
        ("torch.zeros(2, 3)", "torch.zeros(2, 3)", ["self.seen"]),
        ("None", "everything", ["self.seen"]),
    ],
)
def test_what_a_forward_makes_for_its_own_module_goes_with_the_replica(
    made: str, given: str, found: list[str]
) -> None:
    text = ATTENTION.replace("MADE", made).replace("SET", given)
    assert [one.name for one in facts_of(text).forward_state] == found


COUNTER = """
import torch
def count(model, x):
    handles, layers = [], []
    def hook(module, given, output):
        layers.append(module)
    for layer in model.children():
        handles.append(layer.register_forward_hook(hook))
    model(x)
    TAKEN_AWAY
    return len(layers)
net = Net()
BEFORE
net = torch.nn.DataParallel(net)
BEHIND
"""


@pytest.mark.parametrize(
    ("taken_away", "before", "behind", "turns"),
    [
        pytest.param(
            "[one.remove() for one in handles]", "print(count(net, x))", "", False, id="over before the wrap"
        ),
        pytest.param("pass", "print(count(net, x))", "", True, id="the hooks stay"),
        pytest.param(
            "[one.remove() for one in handles]", "", "print(count(net, x))", True, id="behind the wrap"
        ),
        pytest.param(
            "[one.remove() for one in handles]",
            "print(count(net, x))",
            "later(count)",
            True,
            id="handed on behind it",
        ),
    ],
)
def test_hooks_that_are_gone_before_the_model_is_wrapped_need_no_turns(
    taken_away: str, before: str, behind: str, turns: bool
) -> None:
    text = COUNTER.replace("TAKEN_AWAY", taken_away).replace("BEFORE", before).replace("BEHIND", behind)
    assert facts_of(text).needs_rank_order is turns
