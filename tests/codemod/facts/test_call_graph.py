"""Who calls whom: through names, objects, tables and bases; and every question over it ends, whatever calls what."""

from __future__ import annotations

import ast

import pytest

from dp2ddp.codemod.facts.modules import Modules
from tests.codemod.scripts import converted, facts_of, project_of


def reached(text: str, root: str = "main") -> set[str]:
    modules = Modules(project_of(text))
    roots = [(script, node) for script in modules.scripts for node in script.nodes(ast.FunctionDef)]
    found = modules.graph.reached(part for part in roots if getattr(part[1], "name", "") == root)
    return {getattr(node, "name", "lambda") for _, node in found} - {root}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("def a(): pass\ndef main(): a()", {"a"}, id="called"),
        pytest.param("def a(): pass\ndef main(): run(a)", {"a"}, id="handed on"),
        pytest.param("def b(): pass\ndef a(): b()\ndef main(): a()", {"a", "b"}, id="through another"),
        pytest.param("def a(): main()\ndef main(): a()", {"a"}, id="a circle"),
        pytest.param("def a(): pass\nT = {'a': a}\ndef main(x): T[x]()", {"a"}, id="a table"),
        pytest.param(
            "def make():\n    def a(): pass\n    return a\nF = make()\ndef main(): F()", {"a"}, id="made"
        ),
        pytest.param(
            "import functools\ndef a(x): pass\nF = functools.partial(a, 1)\ndef main(): F()",
            {"a"},
            id="partial",
        ),
        pytest.param("class C:\n    def a(self): pass\n    def main(self): self.a()", {"a"}, id="of self"),
        pytest.param(
            "class B:\n    def a(self): pass\nclass C(B):\n    def main(self): self.a()",
            {"a"},
            id="of a base",
        ),
        pytest.param(
            "class B:\n    def main(self): self.a()\nclass C(B):\n    def a(self): pass",
            {"a"},
            id="of an heir",
        ),
        pytest.param(
            "class B:\n    def a(self): pass\nclass C(B):\n    def main(self): super().a()", {"a"}, id="super"
        ),
        pytest.param(
            "class M:\n    def a(self): pass\nclass C:\n    def __init__(self): self.m = M()\n"
            "    def main(self): self.m.a()",
            {"a"},
            id="of a part",
        ),
        pytest.param("class M:\n    def a(self): pass\nm = M()\ndef main(): m.a()", {"a"}, id="of an object"),
        pytest.param(
            "class C:\n    def __init__(self): self.f = lambda: b()\n    def main(self): self.f()\n"
            "def b(): pass",
            {"lambda", "b"},
            id="a lambda",
        ),
        pytest.param("def a(): pass\ndef main(): pass", set(), id="nobody"),
    ],
)
def test_what_a_function_reaches(text: str, names: set[str]) -> None:
    assert reached(text) == names


def test_calls_and_mentions_of_a_function() -> None:
    modules = Modules(project_of("def a(): pass\na()\nrun(a)\nx.a()\n"))
    (function,) = [(one, node) for one in modules.scripts for node in one.nodes(ast.FunctionDef)]
    assert [node.lineno for _, node in modules.graph.calls(function)] == [2]
    assert [getattr(node, "lineno", 0) for _, node in modules.graph.mentions(function)] == [2, 3]


HEAD = (
    "import random, threading\nimport torch\nfrom torch import nn\n"
    "from torch.utils.data import DataLoader, Dataset\n"
)
TRAIN = "net = nn.DataParallel(nn.Linear(2, 2))\nfor x, y in DataLoader(data, batch_size=4):\n    net(x)\n"
TWO = "def a(n):\n    return b(n - 1)\ndef b(n):\n    return a(n - 1)\n"
CIRCLES = {
    "a seed": "def a(n):\n    torch.cuda.manual_seed(n)\n    b(n)\ndef b(n):\n    a(n)\na(1)\n",
    "a guard": "def a(n):\n    torch.distributed.init_process_group('nccl')\n    b(n)\ndef b(n):\n    a(n)\n",
    "a data set": TWO + "class D(Dataset):\n    def __getitem__(self, i):\n        return a(i), self.get(i)\n"
    "    def get(self, i):\n        return self.get(i - 1)\ndata = D()\n",
    "a collate": TWO + "def collate(rows):\n    return a(rows)\ndata = DataLoader(x, collate_fn=collate)\n",
    "a thread": "def a():\n    b()\ndef b():\n    a()\nthreading.Thread(target=a).start()\n",
    "a forward": "class M(nn.Module):\n    def forward(self, x):\n        return self.step(x)\n    def step(self, x):\n"
    "        return self.forward(x) + random.random()\n",
    "bases": "class A(B): pass\nclass B(A):\n    def forward(self, x): return x\na = A()\na.fit()\n",
    "bases of DataParallel": "class A(B): pass\nclass B(A): pass\nA(net)\n",
    "a name": "net = make(net)\ndef make(net):\n    return make(net)\n",
    "visible devices": "import os\ndef a():\n    b()\ndef b():\n    a()\na()\n"
    "os.environ['CUDA_VISIBLE_DEVICES'] = '0,1'\n",
    "a transform": "t = Compose([t])\ndata = CIFAR10(transform=t)\n",
    "a clock": "import time\na = time.time()\nb = a\na = b\nos.makedirs(a)\n",
    "a path": "p = q\nq = p\np = p / 'x'\ntorch.save(net, p)\n",
    "a cache": "class M(nn.Module):\n    def forward(self, x):\n        k = v\n        v = k\n"
    "        self.c[k] = v\n        return self.c[k]\n",
}


@pytest.mark.parametrize("text", CIRCLES.values(), ids=CIRCLES)
def test_every_question_ends_in_a_circle(text: str) -> None:
    facts_of(HEAD + text + TRAIN)
    converted(HEAD + text + TRAIN)


def chain(length: int, last: str) -> str:
    """`f0` calls `f1`, which calls `f2`, and so on: deeper than any limit there was."""
    links = "".join(f"def f{i}(i):\n    return f{i + 1}(i)\n" for i in range(length))
    return f"{links}def f{length}(i):\n    return {last}\n"


DATA = (
    "class D(Dataset):\n    def __getitem__(self, i):\n        return f0(i)\n"
    "    def __len__(self):\n        return 9\ndata = D()\n"
)


def test_what_stands_ten_calls_away_is_found() -> None:
    """A data set whose samples are plain, or draw, at the end of a long chain of calls."""
    plain = facts_of(HEAD + chain(10, "float(i)") + DATA + TRAIN)
    drawn = facts_of(HEAD + chain(10, "random.random()") + DATA + TRAIN)
    assert "draw" not in (plain.shard_stopper or "")
    assert "may draw random numbers" in (drawn.shard_stopper or "")
