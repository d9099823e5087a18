"""Statements that are put under a condition."""

from __future__ import annotations

import ast
import textwrap

import pytest

from dp2ddp.codemod.edits import Guard, InsertBefore, Replace
from dp2ddp.codemod.writing.apply import edit_text
from tests.codemod.scripts import module_of

TEST = "rank == 0"


def guard(text: str, first: int, last: int) -> str:
    """With the statements of the innermost block that begin on two lines put under the condition."""
    script = module_of(text)
    nodes = [node for node in ast.walk(script.tree) if isinstance(node, (ast.Expr, ast.Assign, ast.With))]
    one, other = (next(node for node in nodes if node.lineno == line) for line in (first, last))
    return edit_text(script, [Guard(one, other, TEST, "why")])


@pytest.mark.parametrize(
    ("before", "lines", "after"),
    [
        ("print(1)\nprint(2)\nx = 1\n", (1, 2), "if rank == 0:\n    print(1)\n    print(2)\nx = 1\n"),
        (
            "def f():\n\tif x:\n\t\tprint(1,\n\t\t\t2)  # both\n",
            (3, 3),
            "def f():\n\tif x:\n\t\tif rank == 0:\n\t\t\tprint(1,\n\t\t\t\t2)  # both\n",
        ),
        (
            'print("""a\nb\n""",\n1)\n\n# c\nprint(2)\n',
            (1, 7),
            'if rank == 0:\n    print("""a\nb\n""",\n    1)\n\n    # c\n    print(2)\n',
        ),
        ("if x:  print(1)\n", (1, 1), "if x:\n    if rank == 0:\n        print(1)\n"),
        (
            "for i in x:\n  if i: print(1)\n",
            (2, 2),
            "for i in x:\n  if i:\n    if rank == 0:\n      print(1)\n",
        ),
    ],
)
def test_statements_go_under_a_condition(before: str, lines: tuple[int, int], after: str) -> None:
    assert guard(before, *lines) == after
    compile(after, "after", "exec")


def test_edits_inside_and_in_front_are_kept() -> None:
    text = "x = 1\nprint(a,\n      b)\n"
    script = module_of(text)
    statement = script.tree.body[1]
    call = statement.value  # type: ignore[attr-defined]

    after = edit_text(
        script,
        [
            InsertBefore(statement, "begin()\nif y:\n    go()", "why"),
            Guard(statement, statement, TEST, "why"),
            Replace(call.args[1], "c", "why"),
        ],
    )

    assert after == textwrap.dedent("""\
        x = 1

        begin()
        if y:
            go()

        if rank == 0:
            print(a,
                  c)
    """)
