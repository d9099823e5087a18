"""Which method a call means, through bases and what overrides it; None where it may be several."""

from __future__ import annotations

import ast

import pytest

from dp2ddp.codemod.facts.methods import method_called
from tests.codemod.scripts import script_of

CLASSES = """
class Base:
    def __init__(self, net):
        self.net = net
    def fit(self, loader):
        self.step(loader)
        self.hook(loader)
    def step(self, batch):
        raise NotImplementedError
    def hook(self, batch):
        print(batch)

class Trainer(Base):
    def __init__(self, net):
        super().__init__(net)
    def step(self, rows):
        pass
        self.net(rows)
    def hook(self, rows):
        print(rows)
    def fit_all(self, loaders):
        self.fit(loaders)

trainer = Trainer(net)
trainer.fit(loader)
other.fit(loader)
Trainer(net).fit(loader)
"""


@pytest.mark.parametrize(
    ("called", "line"),
    [
        ("super().__init__(net)", 3),
        ("self.step(loader)", 16),  # of the base nothing is left
        ("self.hook(loader)", None),  # that of the base, or that of the heir
        ("self.fit(loaders)", 5),
        ("trainer.fit(loader)", 5),
        ("Trainer(net).fit(loader)", 5),
        ("other.fit(loader)", None),
    ],
)
def test_the_method_of_a_call(called: str, line: int | None) -> None:
    script = script_of(CLASSES)
    call = next(call.node for call in script.calls if ast.unparse(call.node) == called)
    found = method_called(script, call)
    assert (found.lineno if found else None) == line
