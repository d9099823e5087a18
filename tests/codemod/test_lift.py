"""Helpers are copied as text, with all that they need and nothing else."""

from __future__ import annotations

import ast

import pytest

from dp2ddp.codemod.lift import Library, Lifted, read_templates
from dp2ddp.errors import ConversionError

TEMPLATES = {
    "process": '"""P."""\nimport os\nimport torch\nimport torch.distributed as dist\n\nLIMIT = 3  # as many\n\n\n'
    'def world():\n    """W ranks."""\n    return dist.get_world_size() if LIMIT else os.getpid()\n\n\n'
    "def unused():\n    pass\n",
    "rows": "import math\nfrom .process import world\n\n\n# What a comment says stays.\n@property\ndef gather(rows):\n"
    "    return [math.floor(world()) for world_ in rows]\n",
}


def lift(*helpers: str) -> Lifted:
    return Library(TEMPLATES).lift(helpers)


def test_the_closure_is_lifted_in_the_order_of_use() -> None:
    lifted = lift("gather")

    assert [text.splitlines()[0] for text in lifted.definitions] == [
        "LIMIT = 3  # as many",
        "def world():",
        "# What a comment says stays.",
    ]
    assert {line.text for line in lifted.imports} == {
        "import math",
        "import os",
        "import torch.distributed as dist",
    }


def test_text_is_byte_for_byte() -> None:
    for text in lift("gather").definitions:
        assert text in TEMPLATES["process"] + TEMPLATES["rows"]


def test_the_names_that_they_need_of_the_module_are_known() -> None:
    needed = lift("gather").global_names

    assert needed == {"LIMIT", "world", "dist", "os", "gather", "math", "property"}


def test_an_unknown_helper_is_an_error() -> None:
    with pytest.raises(ConversionError, match="no nothing"):
        lift("nothing")


def test_every_helper_of_the_real_templates_can_be_lifted_alone() -> None:
    library = Library()
    for name, text in read_templates().items():
        for node in ast.parse(text).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                lifted = library.lift([node.name])
                assert lifted.definitions[-1] in read_templates()[name]
                ast.parse("\n".join([*(line.text for line in lifted.imports), *lifted.definitions]))
                assert all(
                    any(part in whole for whole in read_templates().values()) for part in lifted.definitions
                )


def test_nothing_in_the_templates_is_left_behind() -> None:
    """What is lifted is defined or assigned once: of `NAMES += [...]` a script would get nothing."""
    definitions = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    statements = [each for text in read_templates().values() for each in ast.parse(text).body[1:]]

    assert len(statements) > 100
    assert [ast.unparse(each) for each in statements if not isinstance(each, definitions)] == []


def test_replicas_by_hand_bring_nothing_of_turns_where_none_are_taken() -> None:
    assert "run_in_turns" not in Library().lift(["parallel_apply_on_ranks"]).global_names
    assert "run_in_turns" in Library().lift(["parallel_apply_in_turns"]).global_names
