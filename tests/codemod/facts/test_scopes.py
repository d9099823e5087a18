"""Which name means what."""

from __future__ import annotations

import ast

import pytest

from tests.codemod.scripts import script_of


def name_of_last_call(text: str) -> str | None:
    script = script_of(text)
    return script.calls[-1].name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param("import torch\ntorch.nn.DataParallel(m)", "torch.nn.DataParallel", id="plain"),
        pytest.param("import torch as ch\nch.nn.DataParallel(m)", "torch.nn.DataParallel", id="module alias"),
        pytest.param(
            "import torch.nn as nn\nnn.DataParallel(m)", "torch.nn.DataParallel", id="submodule alias"
        ),
        pytest.param("from torch import nn\nnn.DataParallel(m)", "torch.nn.DataParallel", id="from torch"),
        pytest.param("from torch.nn import DataParallel as DP\nDP(m)", "torch.nn.DataParallel", id="as DP"),
        pytest.param(
            "from torch.nn.parallel.data_parallel import DataParallel\nDataParallel(m)",
            "torch.nn.DataParallel",
            id="deep",
        ),
        pytest.param("from torch.nn import *\nDataParallel(m)", "torch.nn.DataParallel", id="star"),
        pytest.param(
            "from torch import nn\nDP = nn.DataParallel\nDP(m)", "torch.nn.DataParallel", id="assigned"
        ),
        pytest.param("def f():\n    import torch\n    torch.save(m)", "torch.save", id="in a function"),
        pytest.param(
            "try:\n    import cv2\nexcept E:\n    cv2 = None\ncv2.imwrite(p)", "cv2.imwrite", id="in try"
        ),
        pytest.param("open(p)", "builtins.open", id="builtin"),
        pytest.param("def open(p): pass\nopen(p)", "__script__.open", id="own function"),
        pytest.param("def f(torch):\n    torch.save(m)", None, id="parameter"),
        pytest.param("import torch\nDP = torch.a\nDP = torch.b\nDP(m)", None, id="assigned twice"),
        pytest.param("a = b\nb = a\na(m)", None, id="circle"),
        pytest.param(
            "class A:\n    open = 1\n    def f(self):\n        open(p)",
            "builtins.open",
            id="class body is not seen",
        ),
    ],
)
def test_a_call_has_its_qualified_name(text: str, name: str | None) -> None:
    assert name_of_last_call(text) == name


def test_values_are_followed_through_names() -> None:
    script = script_of("a = [0, 1]\nb = a\nf(b)")

    value = script.scopes.value(script.calls[0].node.args[0])

    assert isinstance(value, ast.List)
