"""libcst prints every file as it was read, and has a node for every node of `ast` that edits are about."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from dp2ddp.codemod.edits import InsertBefore
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.writing.apply import edit_text
from dp2ddp.codemod.writing.tree import read_tree
from dp2ddp.errors import ConversionError
from dp2ddp.source.read_source import read_source
from tests.codemod.scripts import module_of

ROOT = Path(__file__).resolve().parent.parent.parent
KINDS = (ast.stmt, ast.Call, ast.Name, ast.Attribute, ast.keyword, ast.Constant, ast.Tuple, ast.GeneratorExp)
FILES = [
    *ROOT.glob("tests/corpus/*/*.py"),
    *ROOT.glob("examples/*/train.py"),
    *ROOT.glob("templates/**/*.py"),
]

NO_PYTHON = "an argument that is no Python any more"
ODD = {
    "form feeds between statements": "\x0c\nimport a\n\n\x0c\nclass A:\n    x = 1\n",
    "a text with form feeds and backslashes": 'x = """\n\x0c\n\\\n\r\x0celse:\n"""\ny = 1\n',
    "blanks at the end": "x = 1\n  \n\t\n",
    "an indented comment at the end": "x = 1\n\n   # c\n\n  # d",
    "no line ending": "x = 1",
    "a carriage return and a tail": "x = 1\r\r   # c",
    "carriage returns": "x = 1\rif x:\r\ty = 2\r",
    "line endings of all kinds": "x = 1\r\ny = '''a\rb\n'''\rz = 3\n",
    NO_PYTHON: "x.cuda(async=True, b=1)  # async=True\n",
    "deeper than libcst goes by itself": f"x = {'a + ' * 190}a\n",
    "tuples": "f((a), (b))\nf(((a), b))\nx = ((1, 2), 3)\ny = 1,\nz = ()\nw = (a), (b)\n",
    "many targets": "for (a, b), c in d: (e, [f]) = g = h; del a, (b)\n",
}


def found(script: Module) -> int:
    nodes = [
        node for node in ast.walk(script.tree) if isinstance(node, KINDS) and is_expression(script, node)
    ]
    tree = read_tree(script, nodes)
    assert tree.printed(tree.module) == script.source.text
    for node in nodes:
        if isinstance(node, ast.Name):
            assert tree.nodes[node].value == node.id  # type: ignore[attr-defined]
    return len(nodes)


def is_expression(script: Module, node: ast.AST) -> bool:
    """Patterns of `match` are none; before Python 3.12 `ast` places what is inside f-strings wrongly."""
    around = [type(one) for one in script.around(node)]
    in_slice = isinstance(node, ast.Tuple) and isinstance(script.parents[node], ast.Subscript)
    return (
        not in_slice
        and ast.JoinedStr not in around
        and not any("match" in one.__name__.lower() for one in around)
    )


@pytest.mark.parametrize("name", ODD)
def test_odd_texts(name: str) -> None:
    assert found(module_of(ODD[name]))


def test_every_node_of_many_files_is_found(wants_all: bool) -> None:
    total = sum(found(module_of(read_source(path).text)) for path in FILES[:: 1 if wants_all else 6])
    assert total > (15_000 if wants_all else 3_000)


@pytest.mark.parametrize("name", [name for name in ODD if name not in ("carriage returns", NO_PYTHON)])
def test_edits_behind_what_is_odd_find_their_place(name: str) -> None:
    text = ODD[name].rstrip() if name.endswith("at the end") else ODD[name]
    text = text if text.endswith(("\n", "\r")) else text + "\n"
    script = module_of(text + "last()\n")

    after = edit_text(script, [InsertBefore(script.tree.body[-1], "new()", "")])

    newline = re.findall("\r\n|\r|\n", text)[0]
    assert after == text + f"{newline}new(){newline}{newline}last()\n"


@pytest.mark.parametrize("text", ["x = 1\n\x0cy = 2\n", "x = 1\n\\\ny = 2\n"])
def test_what_libcst_cannot_print_is_refused_with_its_line(text: str) -> None:
    script = module_of(text)
    with pytest.raises(ConversionError, match="<stdin>:2: libcst cannot print this line"):
        read_tree(script, script.tree.body)


def test_the_limit_of_recursion_is_put_back() -> None:
    limit = sys.getrecursionlimit()
    found(module_of("x = 1\n"))
    assert sys.getrecursionlimit() == limit
