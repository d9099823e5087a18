"""What is no Python 3 is said in one line."""

from __future__ import annotations

import ast
import sys
from itertools import islice

import pytest

from dp2ddp.errors import SourceError
from dp2ddp.source.files import SourceFile
from dp2ddp.source.parsing import nodes_in, parse, parse_leniently


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


@pytest.mark.parametrize(
    "line",
    ["mode = 0777", "size = 10L", "if a <> b: pass", "x = `y`", 'x = ur"a"', "exec code in names",
     "f = lambda (a, b): a", "def f(a, (b, c)): pass", "def f((b, c)): pass"],
)  # fmt: skip
def test_what_only_python_2_reads(line: str) -> None:
    with pytest.raises(SourceError, match="<stdin>:2:.*Python 2; convert it first"):
        parse(SourceFile(None, f"import torch\n{line}\n"))


@pytest.mark.parametrize(
    "line", ["x = (0.5", "x = 1 +", "x = f(lambda a: (a)", "x = 100l0", "def f(a=(1)): return ("]
)
def test_what_is_wrong_in_python_3_too(line: str) -> None:
    with pytest.raises(SourceError) as error:
        parse(SourceFile(None, f"import torch\n{line}\n"))
    assert "Python 2" not in str(error.value)


def test_tabs_and_spaces_mixed_are_one_clear_line() -> None:
    with pytest.raises(SourceError, match="<stdin>:3:.*inconsistent use of tabs and spaces in indentation"):
        parse(SourceFile(None, "if x:\n\ty = 1\n        z = 2\n"))


def test_a_form_feed_ends_no_line() -> None:
    with pytest.raises(SourceError, match="<stdin>:3:.*Python 2"):
        parse(SourceFile(None, "x = 1\n\x0c\nx = 0777\n"))


NESTED = ("-" * 3000 + "1", "+".join("1" * 3000), "m" + ".b(1)" * 1500)
# Python 3.10 reads what the later ones refuse
READ_BY_3_10 = pytest.mark.skipif(sys.version_info < (3, 11), reason="read, and refused later")


@pytest.mark.parametrize("text", ["(" * 500, *(pytest.param(text, marks=READ_BY_3_10) for text in NESTED)])
def test_what_is_nested_too_deeply_is_one_line(text: str) -> None:
    with pytest.raises(SourceError, match="nested"):
        parse(SourceFile(None, text))


def test_what_others_hang_on_shared_nodes_is_not_walked() -> None:
    """A traceback in a notebook sets `parent` on each node of its file, and `Load()` is one node for all trees."""
    tree = ast.parse("for a in b:\n    c[a] += d.e if not f else [g for g in h]\n")
    other = ast.parse("x")
    shared = [node for node in ast.walk(other) if not node._fields]
    for node in shared:
        node.parent = other.body[0]  # type: ignore[attr-defined]
    try:
        walked = list(islice(nodes_in(tree), 1000))
    finally:
        for node in shared:
            del node.parent  # type: ignore[attr-defined]

    assert sorted(map(ast.dump, walked)) == sorted(map(ast.dump, ast.walk(tree)))
