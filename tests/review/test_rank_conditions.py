"""Whether a name may hold a rank does not depend on what was asked before; names may be made of themselves."""

from __future__ import annotations

import ast

import pytest

from dp2ddp.review.ddp_script import DDPScript
from tests.review.finding import script_of


def ddp_script(text: str) -> DDPScript:
    return DDPScript(script_of(text))


CIRCLE = "x = y\ny = x\ny = z\nz = my_rank\n"


@pytest.mark.parametrize("order", ["xyz", "yxz", "zyx", "yzx"])
def test_names_in_a_circle_come_from_a_rank_whoever_is_asked_first(order: str) -> None:
    ranks = ddp_script(CIRCLE).ranks

    assert [ranks.may_ask(ast.Name(name)) for name in order] == [True, True, True]


def test_names_in_a_circle_without_a_rank_do_not() -> None:
    ranks = ddp_script(CIRCLE.replace("my_rank", "width")).ranks

    assert not any(ranks.may_ask(ast.Name(name)) for name in "yxz")


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("count = count + 1", False),
        ("count = other\nother = count", False),
        ("count = dist.get_rank()", True),
        ("count = int(os.environ['RANK'])", True),
    ],
)
def test_what_a_name_holds_is_asked_for_to_its_end(text: str, asks: bool) -> None:
    script = ddp_script(f"import os\nimport torch.distributed as dist\n{text}\nif count == 0:\n    pass\n")
    (condition,) = script.module.all(ast.If)

    assert script.ranks.asks_now(condition.test) == asks


def test_defaults_belong_to_the_code_around_their_function() -> None:
    script = ddp_script("def f(x, y=g()):\n    h(x)\n")
    default, inside = (call.node for call in script.module.calls)

    assert script.file.function_of(default) is script.module.tree
    assert script.file.function_of(inside) is script.module.tree.body[0]


def test_what_a_file_imports_from_beside_it_is_none_of_a_library() -> None:
    script = ddp_script(
        "from .torch.distributed import barrier\nfrom . import wandb\nbarrier()\nwandb.init()\n"
    )

    assert not script.collectives
    assert {call.name for call in script.module.calls}.isdisjoint({"torch.distributed.barrier", "wandb.init"})
    assert not any(script.module.program.is_local(call.name) for call in script.module.calls)
