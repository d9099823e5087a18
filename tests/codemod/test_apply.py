"""Edits carried out on a libcst tree: what they say happens, around them nothing does."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from dp2ddp.codemod.edits import (
    Decorate,
    DropArgument,
    Guard,
    InsertAfter,
    InsertBefore,
    PassTo,
    Remove,
    Replace,
    SetArgument,
    TextEdit,
)
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.writing.apply import edit_text
from dp2ddp.errors import ConversionError
from tests.codemod.scripts import module_of

Make = Callable[[Module], list[TextEdit]]


def edited(text: str, make: Make) -> str:
    script = module_of(text)
    after = edit_text(script, make(script))
    ast.parse(after.replace("async=", "asynk="))
    return after


def calls(script: Module, name: str = "f") -> list[ast.Call]:
    return [call.node for call in script.calls if ast.unparse(call.node.func).endswith(name)]


def call(script: Module, name: str = "f") -> ast.Call:
    return calls(script, name)[0]


def passed(script: Module) -> list[TextEdit]:
    return [PassTo(one, "on_rank_zero", "") for one in calls(script)]


def replaced(code: str, **holes: int) -> Make:
    """The call of f becomes this code; holes are filled with its arguments."""

    def make(script: Module) -> list[TextEdit]:
        one = call(script)
        return [Replace(one, code, "", {name: one.args[index] for name, index in holes.items()})]

    return make


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(a, b)\n", "on_rank_zero(f, a, b)\n"),
        ("f()\n", "on_rank_zero(f)\n"),
        ("f(\n)\n", "on_rank_zero(f\n)\n"),
        ("f (a)\n", "on_rank_zero(f, a)\n"),
        ("f(\n    a,  # why\n)\n", "on_rank_zero(f,\n    a,  # why\n)\n"),
        ("f(  # why\n    a\n)\n", "on_rank_zero(f,  # why\n    a\n)\n"),
        ("f(x for x in y)\n", "on_rank_zero(f, (x for x in y))\n"),
        ("f((x for x in y))\n", "on_rank_zero(f, (x for x in y))\n"),
        ("f(*a, **b)\n", "on_rank_zero(f, *a, **b)\n"),
        ("(f)(a)\n", "on_rank_zero((f), a)\n"),  # was `(on_rank_zero(f), a)`, a tuple, as text
        ("f(f(1), 2)\n", "on_rank_zero(f, on_rank_zero(f, 1), 2)\n"),
        ("x = [f(i) for i in y if f(i)]\n", "x = [on_rank_zero(f, i) for i in y if on_rank_zero(f, i)]\n"),
        ("x = f'{f(1)!r:>{f(2)}}'\n", "x = f'{on_rank_zero(f, 1)!r:>{on_rank_zero(f, 2)}}'\n"),
        ("if f(a): f(b); f(c)\n", "if on_rank_zero(f, a): on_rank_zero(f, b); on_rank_zero(f, c)\n"),
    ],
)
def test_calls_are_passed_on(before: str, after: str) -> None:
    assert edited(before, passed) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(a,\n  b)\n", "on_rank_zero(f, a,\n             b)\n"),
        ("\tx = f(a,\n\t      b)\n", "\tx = on_rank_zero(f, a,\n\t                 b)\n"),
        ("f(a,\r\n  b)\r\n", "on_rank_zero(f, a,\r\n             b)\r\n"),
        # with its comments, an empty line and a bracket that closes below the one that opens
        (
            "f(a,  # one\n  # two\n\n  b,\n )\n",
            "on_rank_zero(f, a,  # one\n             # two\n\n             b,\n            )\n",
        ),
        # what hangs moves with its line
        (
            "f(a,\n  [\n      b,\n  ])\n",
            "on_rank_zero(f, a,\n             [\n                 b,\n             ])\n",
        ),
        ("f({'a': 1,\n   'b': 2})\n", "on_rank_zero(f, {'a': 1,\n                 'b': 2})\n"),
        ("f(f(a,\n    b))\n", "on_rank_zero(f, on_rank_zero(f, a,\n                             b))\n"),
        ("f('a'\n  'b')\n", "on_rank_zero(f, 'a'\n             'b')\n"),
        # a bracket in a string is none, and a string stays as it is
        ("f(f'({a}', '[',\n  b)\n", "on_rank_zero(f, f'({a}', '[',\n             b)\n"),
        ('f("""(\n  """, a,\n  b)\n', 'on_rank_zero(f, """(\n  """, a,\n             b)\n'),
        # what was not aligned stays where it is
        ("f(a,\n    b)\n", "on_rank_zero(f, a,\n    b)\n"),
        ("f(\n  a,\n  b)\n", "on_rank_zero(f,\n  a,\n  b)\n"),
        ("g(f(a),\n  b)\n", "g(on_rank_zero(f, a),\n  b)\n"),
        ("f(a, \\\n  b)\n", "on_rank_zero(f, a, \\\n  b)\n"),
    ],
)
def test_lines_that_were_aligned_with_their_bracket_are_aligned_anew(before: str, after: str) -> None:
    head = "if x:\n" if before.startswith("\t") else ""
    assert edited(head + before, passed) == head + after


def test_lines_move_to_the_left_with_a_shorter_name_and_in_what_fills_a_hole() -> None:
    def make(script: Module) -> list[TextEdit]:
        outer = call(script, "long.name")
        return [Replace(outer.func, "f", ""), Replace(outer.args[0], "w({it})", "", {"it": outer.args[0]})]

    before = "x = long.name(g(a,\n                b),\n              c)\n"
    assert edited(before, make) == "x = f(w(g(a,\n          b)),\n      c)\n"


@pytest.mark.parametrize(
    ("before", "code", "holes", "after"),
    [
        ("x = f(a)\n", "g()", {}, "x = g()\n"),
        ("x = (f(a))\n", "g()", {}, "x = (g())\n"),
        ("x = not(f(a))\n", "g()", {}, "x = not(g())\n"),
        ("x = f(a, b)\n", "g({two}, {one})", {"one": 0, "two": 1}, "x = g(b, a)\n"),
        ("x = f((a))\n", "g({one})", {"one": 0}, "x = g(a)\n"),
        ("x = f(((a, b)))\n", "g({one})", {"one": 0}, "x = g((a, b))\n"),
        ("x = f((y for y in z))\n", "g({one})", {"one": 0}, "x = g((y for y in z))\n"),
        ("x = f((y := 1))\n", "g(k={one})", {"one": 0}, "x = g(k=(y := 1))\n"),
        ("x = f(a)\n", "(type({one}) is {one})", {"one": 0}, "x = (type(a) is a)\n"),
    ],
)
def test_code_takes_the_place_of_an_expression(
    before: str, code: str, holes: dict[str, int], after: str
) -> None:
    assert edited(before, replaced(code, **holes)) == after


def test_a_hole_keeps_its_own_edits_and_the_whole_may_be_one() -> None:
    def make(script: Module) -> list[TextEdit]:
        outer, inner = calls(script)
        return [
            Replace(outer, "w({it})", "", {"it": outer}),
            PassTo(inner, "p", ""),
            SetArgument(outer, "k", "1", ""),
            Replace(outer.func, "g", ""),
        ]

    assert edited("x = f(f(a))\n", make) == "x = w(g(p(f, a), k=1))\n"


def test_a_keyword_argument_may_become_another() -> None:
    def make(script: Module) -> list[TextEdit]:
        given = call(script).keywords[0]
        return [Replace(given, "b={it}", "", {"it": given.value})]

    assert edited("f(p , (q)  ,  a = 1 )\n", make) == "f(p , (q)  ,  b=1 )\n"
    with pytest.raises(ConversionError, match="two rules"):
        edited("f(a=1)\n", lambda one: [*make(one), Replace(call(one).keywords[0], "c=2", "")])


def test_what_would_be_no_python_is_refused() -> None:
    make: Make = lambda one: [Replace(call(one).args[0], "k=1", "")]  # noqa: E731
    with pytest.raises(ConversionError, match="would not be Python .* please report"):
        edited("f(p, q)\n", make)


@pytest.mark.parametrize(
    ("before", "dropped", "after"),
    [
        ("f(a, b , c)\n", (1,), "f(a , c)\n"),
        ("f(a, b)\n", (0,), "f(b)\n"),
        ("f(a, b,)\n", (1,), "f(a,)\n"),
        ("f( a )\n", (0,), "f()\n"),
        ("f(\n    a,\n    b,\n)\n", (1,), "f(\n    a,\n)\n"),
        ("f(a, b, c)\n", (0, 1), "f(c)\n"),
        ("f(a, b, c)\n", (1, 2), "f(a)\n"),
        ("f(a, b)\n", (0, 1), "f()\n"),
    ],
)
def test_arguments_go_with_a_comma(before: str, dropped: tuple[int, ...], after: str) -> None:
    assert (
        edited(before, lambda one: [DropArgument(call(one).args[i], call(one), "") for i in dropped]) == after
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()\n", "f(k=1)\n"),
        ("f(a)\n", "f(a, k=1)\n"),
        ("f(a,)\n", "f(a, k=1,)\n"),
        ("f(\n    a,\n)\n", "f(\n    a, k=1,\n)\n"),
        ("f(x for x in y)\n", "f((x for x in y), k=1)\n"),
    ],
)
def test_a_keyword_argument_is_given(before: str, after: str) -> None:
    assert edited(before, lambda one: [SetArgument(call(one), "k", "1", "")]) == after


def test_an_argument_goes_and_another_comes() -> None:
    both: Make = lambda one: [  # noqa: E731
        DropArgument(call(one).args[0], call(one), ""), SetArgument(call(one), "k", "1", ""), *passed(one)
    ]  # fmt: skip
    assert edited("f(a)\n", both) == "on_rank_zero(f, k=1)\n"


def statement(script: Module, name: str = "f") -> ast.stmt:
    found = script.statement(call(script, name))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nf()  # gone\nb\n", "a\nb\n"),
        ("a\n# stays\nf()\nb\n", "a\n# stays\nb\n"),
        ("a\n# stays\nf()\n", "a\n# stays\n"),
        ("if x:\n    f()  # c\nb\n", "if x:\n    pass  # c\nb\n"),
        ("if x:\n    # stays\n    f()\n    b\n", "if x:\n    # stays\n    b\n"),
        ("if x: f()\n", "if x:\n    pass\n"),
        ("a; f(); b\n", "a\nb\n"),
        ("if x: f(); b\n", "if x:\n    b\n"),
        ("f(\n 1,\n 2)\nb\n", "b\n"),
    ],
)
def test_a_statement_goes(before: str, after: str) -> None:
    assert edited(before, lambda one: [Remove(statement(one), "")]) == after


def test_all_statements_of_a_block_go() -> None:
    text = "def g():\n    # why\n    f(1)\n    f(2)\n\n\nx\n"
    make: Make = lambda one: [Remove(one.statement(each), "") for each in calls(one)]  # type: ignore[arg-type,misc]  # noqa: E731
    assert edited(text, make) == "def g():\n    # why\n    pass\n\n\nx\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nf()\n", "a\n\nnew()\n\nf()\n"),
        ("a\n\n# of f\nf()\n", "a\n\nnew()\n\n# of f\nf()\n"),
        ("# of the file\nf()\n", "# of the file\n\nnew()\n\nf()\n"),
        ("f()\n", "new()\n\nf()\n"),
        ("if x:\n\t# of f\n\tf()\n", "if x:\n\tnew()\n\t# of f\n\tf()\n"),
        ("if x: f()\n", "if x:\n    new()\n    f()\n"),
        ("a; f()  # c\n", "a\n\nnew()\n\nf()  # c\n"),
        ("f(); a\n", "new()\n\nf(); a\n"),
        ("a\r\nf()\r\n", "a\r\n\r\nnew()\r\n\r\nf()\r\n"),
        ("a\rf()", "a\r\rnew()\r\rf()"),
    ],
)
def test_a_line_comes_before_a_statement(before: str, after: str) -> None:
    assert edited(before, lambda one: [InsertBefore(statement(one), "new()", "")]) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()  # c\nb\n", "f()  # c\nnew()\nb\n"),
        ("if x:\n  f()\n", "if x:\n  f()\n  new()\n"),
        ("if x: f()\n", "if x:\n    f()\n    new()\n"),
        ("f(); b\n", "f()\nnew()\nb\n"),
        ("f()", "f()\nnew()"),
    ],
)
def test_a_line_comes_behind_a_statement(before: str, after: str) -> None:
    assert edited(before, lambda one: [InsertAfter(statement(one), "new()", "")]) == after


def test_a_decorator_comes_under_those_that_are_there() -> None:
    text = "@a\n# of A\nclass A:\n    @b\n    async def g(self): pass\n"
    make: Make = lambda one: [  # noqa: E731
        Decorate(one.tree.body[0], "@new(1)", ""), Decorate(one.tree.body[0].body[0], "@new", "")  # type: ignore[arg-type,attr-defined]
    ]  # fmt: skip
    assert (
        edited(text, make) == "@a\n# of A\n@new(1)\nclass A:\n    @b\n    @new\n    async def g(self): pass\n"
    )


TEST = "rank == 0"


def guarded(text: str, first: int, last: int) -> str:
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
        ("f(a,\n\n  b)\n", (1, 1), "if rank == 0:\n    f(a,\n\n      b)\n"),
    ],
)
def test_statements_go_under_a_condition(before: str, lines: tuple[int, int], after: str) -> None:
    assert guarded(before, *lines) == after
    compile(after, "after", "exec")


def test_edits_inside_and_in_front_of_what_goes_under_a_condition_are_kept() -> None:
    def make(script: Module) -> list[TextEdit]:
        line = statement(script, "print")
        return [
            InsertBefore(line, "begin()\nif y:\n    go()", ""),
            Guard(line, line, TEST, ""),
            Replace(call(script, "print").args[1], "c", ""),
        ]

    after = "x = 1\n\nbegin()\nif y:\n    go()\n\nif rank == 0:\n    print(a,\n          c)\n"
    assert edited("x = 1\nprint(a,\n      b)\n", make) == after


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda one: [Replace(call(one), "a", ""), Replace(call(one), "b", "")], id="two codes"),
        pytest.param(
            lambda one: [Replace(call(one), "a", ""), PassTo(call(one), "b", "")], id="and a helper"
        ),
        pytest.param(lambda one: [PassTo(call(one), "a", ""), PassTo(call(one), "b", "")], id="two helpers"),
        pytest.param(
            lambda one: [Replace(call(one), "a", ""), SetArgument(call(one), "k", "1", "")], id="given"
        ),
        pytest.param(
            lambda one: [Replace(call(one), "a", ""), Replace(call(one), "b({it})", "", {"it": call(one)})],
            id="a hole inside",
        ),
    ],
)
def test_two_rules_that_want_the_same_text_are_refused(make: Make) -> None:
    with pytest.raises(ConversionError, match=r"two rules want to change the same text: 'f\(x\)'"):
        edited("y = f(x)\n", make)


def test_two_rules_that_want_the_same_thing_are_one() -> None:
    assert edited("f(x)\n", lambda one: [*passed(one), *passed(one)]) == "on_rank_zero(f, x)\n"
