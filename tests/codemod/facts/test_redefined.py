"""Names that mean two things, by which nothing is proven."""

from __future__ import annotations

import textwrap

import pytest
from codemod.scripts import facts_of, script_of

from dp2ddp.codemod.facts.redefined import redefined
from dp2ddp.codemod.strategy import choose

PLAIN, RANDOM = "return self.x[i]", "return self.x[i] + torch.randn(3)"


def training(first: str, second: str) -> str:
    return textwrap.dedent(
        """
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Points(Dataset):
            def __init__(self):
                self.x = torch.randn(8, 3)
            def __len__(self):
                return 8
            def __getitem__(self, i):
                {first}

        net = torch.nn.DataParallel(torch.nn.Linear(3, 2)).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loader = DataLoader(Points(), batch_size=4)
        for x in loader:
            loss = net(x.cuda()).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        class Points(Dataset):
            def __init__(self):
                self.x = torch.randn(8, 3)
            def __len__(self):
                return 8
            def __getitem__(self, i):
                {second}
        """
    ).format(first=first, second=second)


@pytest.mark.parametrize(
    ("first", "second"), [(RANDOM, PLAIN), (PLAIN, RANDOM)], ids=["random first", "random last"]
)
def test_a_data_set_that_is_defined_twice_is_loaded_whole(first: str, second: str) -> None:
    chosen = choose(facts_of(training(first, second)))

    assert chosen.data.value == "share"
    assert "`Points` means two things (line 5, line 22)" in chosen.data.because


def test_the_same_definition_twice_is_one() -> None:
    assert choose(facts_of(training(PLAIN, PLAIN))).data.value == "shard"


@pytest.mark.parametrize(
    "text",
    [
        "def f(): return 1\ndef f(): return 2",
        "if a:\n    def f(): return 1\nelse:\n    def f(): return 2",
        "from models import Net\nclass Net: pass",
        "from models import Net\nfrom other import Net",
        "def outer():\n    def f(): return 1\n    def f(): return 2",
    ],
)
def test_two_things(text: str) -> None:
    assert redefined(script_of(text)) is not None


@pytest.mark.parametrize(
    ("text", "two"),
    [
        pytest.param(
            "from data import *\nx = make()\ndef make(): pass", True, id="used above its definition"
        ),
        pytest.param("def make(): pass\nfrom data import *\nmake()", True, id="the star comes later"),
        pytest.param("from data import *\ndef make(): pass\nmake()", False, id="defined before it is used"),
        pytest.param("from data import *\ndef other(): pass", False, id="another name"),
    ],
)
def test_a_name_of_a_star_that_is_defined_here_too(text: str, two: bool) -> None:
    facts = facts_of(text, data="def make(): return 1")

    assert (redefined(facts.script) is not None) == two


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nimport torch.nn\nimport torch.nn as nn\nfrom torch import nn",
        "try:\n    from a import x\nexcept ImportError:\n    from b import x",
        "from tqdm import tqdm\nfrom tqdm.auto import tqdm",
        "class A:\n    @property\n    def x(self): return 1\n    @x.setter\n    def x(self, v): pass",
        "def f(): return 1\ndef g():\n    def f(): return 2",
        "from models import *\nfrom other import *",
        "from typing import overload\n@overload\ndef f(x: int): ...\n@overload\ndef f(x: str): ...\ndef f(x): return x",
    ],
)
def test_one_thing(text: str) -> None:
    assert redefined(script_of(text)) is None
