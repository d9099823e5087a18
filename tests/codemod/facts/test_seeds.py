"""Which seeds may be set to the same number twice."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.seeds import repeated_seeds
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
    modules = Modules(Project(SourceFile(None, "import torch\n" + text), ()))
    assert [call.node.lineno for call in repeated_seeds(modules, modules.entry)] == lines
