"""Texts that are put together: `f"cuda:{gpu}"`, `"cuda:%d" % gpu`, `"cuda:" + str(gpu)`, `"cuda:{}".format(gpu)`."""

import ast
import re
from collections.abc import Iterator, Sequence

PERCENT = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]")
_BRACES = re.compile(r"\{(\d*)(?:![ars])?(?::[^{}]*)?\}")
Piece = str | ast.expr  # of a text: how it is written, or a value that it shows


def pieces(node: ast.expr) -> Iterator[Piece]:
    """What a text is put together of; what is none is one piece."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            for part in parts:
                yield from pieces(part.value if isinstance(part, ast.FormattedValue) else part)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from (*pieces(left), *pieces(right))
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod(), right=right):
            yield from filled(PERCENT.split(text), right.elts if isinstance(right, ast.Tuple) else [right])
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format"), args=values):
            if all(number in ("", str(place)) for place, number in enumerate(_BRACES.findall(text))):
                yield from filled(_BRACES.sub("{}", text).split("{}"), values)
        case ast.Call(func=ast.Name(id="str" | "int"), args=[value]):
            yield value
        case _:
            yield node


def pattern_of(node: ast.expr) -> re.Pattern[str]:
    """What a text that is put together may be: `f"Conv{n}d"`."""
    parts = (re.escape(each) if isinstance(each, str) else ".*" for each in pieces(node))
    return re.compile("".join(parts) or ".*", re.DOTALL)


def filled(texts: Sequence[str], values: Sequence[ast.expr]) -> Iterator[Piece]:
    """Texts with the values between them; nothing where that cannot be told."""
    if len(texts) != len(values) + 1:
        return
    for text, value in zip(texts, values, strict=False):
        yield from (text, value)
    yield texts[-1]
