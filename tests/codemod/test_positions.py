"""Where a node stands, in characters."""

from __future__ import annotations

import ast

import pytest

from dp2ddp.codemod.model.positions import Positions


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x = f(1)\n", id="plain"),
        pytest.param("é = 'ü'; y = f(1)\n", id="letters of two bytes"),
        pytest.param("a\r\nb\r\ny = f(1)", id="CRLF"),
        pytest.param("a\x0c\ny = f(1)\n", id="form feed is no line end"),
        pytest.param("s = 'a\u2028b'\ny = f(1)\n", id="nor is a line separator"),
        pytest.param("a\ry = f(1)\r", id="old Mac"),
        pytest.param("\tif x:\n\t\ty = f(1)\n".replace("\t", "", 1).replace("\t\t", "\t"), id="tabs"),
    ],
)
def test_the_source_of_a_node_is_its_text(text: str) -> None:
    (call,) = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))

    assert Positions(text).source(call) == "f(1)"


def test_decorators_belong_to_their_function() -> None:
    text = "x\n@a\n@b\ndef f(): pass\n"

    assert Positions(text).source(ast.parse(text).body[1]) == "@a\n@b\ndef f(): pass"
