"""What is no Python 3 is said in one line."""

from __future__ import annotations

import ast

import pytest

from dp2ddp.errors import SourceError
from dp2ddp.source.files import SourceFile
from dp2ddp.source.parsing import parse, parse_leniently


def test_an_async_argument_is_read_at_its_place() -> None:
    tree = parse(SourceFile(None, "x.cuda(async=True)\n"))

    (keyword,) = (node for node in ast.walk(tree) if isinstance(node, ast.keyword))
    assert (keyword.arg, keyword.col_offset) == ("asynk", 7)


@pytest.mark.parametrize("text", ["async def f(): pass\n", "async with a: pass\n"][:1])
def test_real_async_code_is_not_mistaken(text: str) -> None:
    assert isinstance(parse(SourceFile(None, text)).body[0], ast.AsyncFunctionDef)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("x = (\n", "<stdin>:1:5: '(' was never closed", id="bracket"),
        pytest.param("if x:\n    y\n  z\n", "<stdin>:3:", id="indent"),
        pytest.param(
            "def f(async=1): pass\n", "<stdin>:1:7: `async` is a keyword since Python 3.7", id="argument"
        ),
        pytest.param("x = 1\nasync = 2\n", "<stdin>:2:1: `async` is a keyword", id="async as a name"),
        pytest.param("if args.async: pass\n", "`async` is a keyword", id="async as an attribute"),
        pytest.param("f(x, async=True)\n", "`async` is a keyword", id="async for a function of one's own"),
        pytest.param("print 'x'\n", "Python 2; convert it first", id="print"),
        pytest.param("try: pass\nexcept IOError, e: pass\n", "Python 2", id="except"),
    ],
)
def test_errors_name_the_place(text: str, said: str) -> None:
    with pytest.raises(SourceError) as error:
        parse(SourceFile(None, text))

    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_leniently_there_is_just_no_tree() -> None:
    assert parse_leniently("def (") is None
