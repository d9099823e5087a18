"""Which seeds may be set to the same number twice."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.seeds import seeds_of_first, seeds_to_tell
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import Project

ONCE = "def set_seed(s):\n    torch.manual_seed(s)\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("torch.manual_seed(0)\n", []),
        ("for e in x:\n    torch.manual_seed(0)\n", [3]),
        ("for e in x:\n    torch.manual_seed(e)\n", []),
        ("for e in x:\n    torch.manual_seed(seed + e)\n", []),
        ("for e in x:\n    for b in y:\n        torch.manual_seed(e)\n", [4]),
        (ONCE + "set_seed(1)\n", []),
        (ONCE + "set_seed(1)\nset_seed(1)\n", [3]),
        (ONCE + "set_seed(1)\nset_seed(2)\n", []),
        (ONCE + "for e in x:\n    set_seed(args.seed)\n", [3]),
        (ONCE + "for e in x:\n    set_seed(args.seed + e)\n", []),
        (ONCE + "def main():\n    set_seed(1)\nfor e in x:\n    main()\n", [3]),
        ("class T:\n    def seed(self):\n        torch.manual_seed(0)\nfor e in x:\n    t.seed()\n", [4]),
    ],
)
def test_where_the_same_number_comes_again(text: str, lines: list[int]) -> None:
    modules = read(text)
    assert [call.node.lineno for call in seeds_to_tell(modules, modules.entry)] == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param("torch.manual_seed(s)\ntorch.cuda.manual_seed(s)\n", [], id="the same number"),
        pytest.param("torch.manual_seed(1)\ntorch.cuda.manual_seed(s)\n", [3], id="another number"),
        pytest.param("torch.cuda.manual_seed(s)\n", [], id="nothing else is seeded"),
        pytest.param("for e in x:\n    torch.cuda.manual_seed(0)\n", [3], id="again and again"),
        pytest.param(
            "def cpu(s):\n    torch.manual_seed(s)\ndef gpu(s):\n    torch.cuda.manual_seed(s)\n",
            [5],
            id="in another function",
        ),
    ],
)
def test_which_seeds_of_the_first_device_are_its_own(text: str, lines: list[int]) -> None:
    modules = read(text)
    assert [call.node.lineno for call in seeds_of_first(modules, modules.entry)] == lines
    alone = [call.node.lineno for call in seeds_to_tell(modules, modules.entry)]
    assert bool(alone) == (bool(lines) and ".manual_seed(1)" in text or "def cpu" in text)


def read(text: str) -> Modules:
    return Modules(Project(SourceFile(None, "import torch\n" + text), ()))
