"""Imports that the edits leave unused go, and no others."""

from __future__ import annotations

import ast

import pytest

from dp2ddp.codemod.convert import convert
from tests.codemod.scripts import converted, project_of

USE = "net = DataParallel(Net())\nnet(x)\n"


def imports(text: str) -> str:
    """What stands above the first import of a helper, and whether the rest is Python."""
    after = converted(text).after
    ast.parse(after)
    return after.partition("from dp2ddp")[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("import torch\nfrom torch.nn import DataParallel\n", "import torch\n", id="alone"),
        pytest.param("from torch.nn import DataParallel\n", "", id="the only import"),
        pytest.param(
            "import torch\n\n# why\nfrom torch.nn import DataParallel  # dp\n",
            "import torch\n\n# why\n",
            id="a comment above",
        ),
        pytest.param(
            "from torch.nn import Module, DataParallel\nModule\n",
            "from torch.nn import Module\n",
            id="the last",
        ),
        pytest.param(
            "from torch.nn import DataParallel, Module as M  # both\nM\n",
            "from torch.nn import Module as M  # both\n",
            id="the first",
        ),
        pytest.param(
            "from torch.nn import (\n    Module,\n    DataParallel,\n)\nModule\n",
            "from torch.nn import (\n    Module,\n)\n",
            id="lines",
        ),
        pytest.param(
            "import os; from torch.nn import DataParallel; x = 1\nos\n",
            "import os\nx = 1\n",
            id="a shared line",
        ),
        pytest.param(
            "from torch.nn import (Module,\n    DataParallel)\nModule\n",
            "from torch.nn import (Module)\n",
            id="lines without a last comma",
        ),
    ],
)
def test_an_import_without_uses_goes(before: str, after: str) -> None:
    assert imports(before + USE).rstrip() == after.rstrip()


def test_aliases_and_modules_of_torch_go_too() -> None:
    text = "import torch\nimport torch.nn as nn\nfrom torch.nn import DataParallel as DP\n"
    assert imports(text + "net = nn.DataParallel(a)\nb = DP(c)\n") == "import torch\n"


def test_in_a_function_it_goes_as_well() -> None:
    text = (
        "import torch\ndef wrap(net):\n    from torch.nn import DataParallel\n    return DataParallel(net)\n"
    )
    assert "def wrap(net):\n    return WholeBatchParallel(net" in converted(text + "wrap(net)(x)\n").after


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("from torch.nn import DataParallel  # noqa: F401\n" + USE, id="noqa"),
        pytest.param("from torch.nn import DataParallel  # noqa\n" + USE, id="noqa of all"),
        pytest.param(
            "from torch.nn import DataParallel  # pylint: disable=unused-import\n" + USE, id="pylint"
        ),
        pytest.param("from torch.nn import DataParallel\n__all__ = ['DataParallel']\n" + USE, id="__all__"),
        pytest.param(
            "from torch.nn import DataParallel\ndef f(a: 'DataParallel'): pass\n" + USE, id="annotation"
        ),
        pytest.param(
            "from torch.nn import DataParallel\n" + USE + "print(eval('DataParallel(a, b)'))\n", id="eval"
        ),
        pytest.param(
            "from torch.nn import DataParallel\nx = None  # type: DataParallel\n" + USE, id="type comment"
        ),
        pytest.param(
            "from torch.nn import DataParallel\n" + USE + "def f():\n    del DataParallel\n", id="del"
        ),
        pytest.param(
            "try:\n    from torch.nn import DataParallel\nexcept ImportError:\n    DataParallel = None\n"
            + USE,
            id="try",
        ),
        pytest.param("from torch.nn import *\n" + USE, id="star"),
        pytest.param(
            "from torch.nn import (\n    Module,\n    DataParallel,  # dp\n)\nModule\n" + USE,
            id="comments of names",
        ),
        pytest.param("import torch.nn\nnet = torch.nn.DataParallel(net)\n", id="a package by its own name"),
    ],
)
def test_others_stay(text: str) -> None:
    after = converted(text).after
    kept = next(line for line in text.splitlines() if "import" in line)
    assert kept in after.splitlines()


def test_a_noqa_for_another_reason_does_not_keep_it() -> None:
    assert (
        "noqa" not in converted("import torch\nfrom torch.nn import DataParallel  # noqa: E402\n" + USE).after
    )


def test_words_about_it_are_no_uses() -> None:
    text = (
        "import torch\nfrom torch.nn import DataParallel\n# DataParallel splits\nprint('Using DataParallel!')\n"
        + USE
    )
    assert "import DataParallel" not in converted(text).after


@pytest.mark.parametrize(
    ("entry", "stays"),
    [
        ("from models import build\nnet = build()\nnet(x)\n", False),
        ("from models import build, DataParallel\nnet = build()\nprint(DataParallel)\nnet(x)\n", True),
        ("import models\nnet = models.build()\nassert type(net) is models.DataParallel\nnet(x)\n", True),
        ("from models import *\nnet = build()\nnet(x)\n", True),
    ],
)
def test_what_another_file_takes_from_it_stays(entry: str, stays: bool) -> None:
    module = "from torch.nn import DataParallel\ndef build():\n    return DataParallel(Net())\n"
    conversion = convert(project_of(entry, models=module))
    (changed,) = (one for one in conversion.modules if one.changed)
    assert ("import DataParallel" in changed.after) is stays


def test_the_report_tells_it() -> None:
    conversion = converted("import torch\nfrom torch.nn import DataParallel\n" + USE)
    assert [
        edit.line for edit in conversion.edits if "nothing uses it any more: DataParallel" in edit.because
    ] == [2]
