"""The helpers run where the old script runs: Python 3.8 reads their text, and evaluates their annotations.

benchmarks/old_torch.py runs conversions there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "templates"
TEMPLATES = sorted(path.name for path in FOLDER.glob("*.py"))
GENERICS = {"list", "dict", "tuple", "set", "frozenset", "type"}
LATER = {"cache", "removeprefix", "removesuffix", "pairwise", "bit_count", "to_thread"}


def test_there_are_templates() -> None:
    assert "ranks.py" in TEMPLATES


@pytest.mark.parametrize("name", TEMPLATES)
def test_python_3_8_takes_it(name: str) -> None:
    tree = ast.parse((FOLDER / name).read_text(), feature_version=(3, 8))
    assert [*too_new(tree)] == []


def too_new(tree: ast.Module) -> Iterator[str]:
    """What Python 3.8 parses, and does not run."""
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "collections.abc"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            if node.value.id in GENERICS | imported:
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.keyword) and node.arg == "strict":
            yield f"line {node.value.lineno}: strict="
        elif isinstance(node, ast.Attribute) and node.attr in LATER:
            yield f"line {node.lineno}: {node.attr}"
    for annotation in annotations_of(tree):
        if any(
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) for node in ast.walk(annotation)
        ):
            yield f"line {annotation.lineno}: {ast.unparse(annotation)}"


def annotations_of(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
            yield node.returns


@pytest.mark.parametrize(
    "text",
    [
        "def f(x: list[int]): ...",
        "def f(x: int | None): ...",
        "def f() -> 'int' | None: ...",
        "for a, b in zip(c, d, strict=True): ...",
        "from collections.abc import Callable\ndef f(x: Callable[..., int]): ...",
        "'a'.removeprefix('b')",
    ],
)
def test_what_is_too_new_is_seen(text: str) -> None:
    assert len([*too_new(ast.parse(text))]) == 1
