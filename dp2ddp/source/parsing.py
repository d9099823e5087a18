"""Text to `ast`, with the one error line a person needs when it is not Python 3."""

from __future__ import annotations

import ast
import atexit
import gc
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from dp2ddp.errors import SourceError
from dp2ddp.source.files import SourceFile

# `async` became a keyword in Python 3.7, so `.cuda(async=True)` of older scripts is no Python any more.
ASYNC_ARGUMENT = re.compile(r"\basync(?=\s*=[^=])")
STAND_IN = "asynk"  # of the same length, so that every position in the tree holds for the text too
ASYNC_NAME = re.compile(r"\basync\b(?!\s+(?:def|for|with)\b)")
PYTHON_2 = re.compile(
    r"^\s*(print\s+[^\s(=]|exec\s+[\"'\w]|raise\s+\w+\s*,|except\s+[\w.]+\s*,\s*\w+\s*:)", re.MULTILINE
)
# What only Python 2 reads, in the line that Python 3 stops at: 0777, 10L, <>, `x`, ur"", exec x, def f(a, (b, c)).
PYTHON_2_LINE = re.compile(
    r"(?<![\w.])0[0-7]+\b(?!\.)|(?<![\w.])\d+[lL]\b|<>|`|\b[uU][rR][\"']|^\s*exec\s|\bdef\s+\w+\((?:[^()]*,)?\s*\(|\blambda\s*\("
)
# What Python's tokenizer takes for the end of a line (str.splitlines knows six more).
LINE_END = re.compile(r"\r\n|\r|\n")


def parse(source: SourceFile) -> ast.Module:
    """The tree of a script; `SourceError` names file, line and column if it has none."""
    try:
        return _parse(source.text)
    except (SyntaxError, ValueError) as error:
        raise SourceError(_explain(source, error)) from error
    except (RecursionError, MemoryError) as error:  # MemoryError: what the parser of Python 3.12 says to it
        raise SourceError(f"{source.name}: nested too deeply to be read") from error


def parse_leniently(text: str) -> ast.Module | None:
    """The tree, or None where there is none."""
    try:
        return _parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def check_as_one(source: SourceFile) -> None:
    """A SourceError for cells that are Python one by one, but not in one file: `global x` behind `x = 1`."""
    if ASYNC_ARGUMENT.search(source.text):
        return  # is mended later
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source.text, source.name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise SourceError(f"{_explain(source, error)} (in a script, which all cells are together)") from error


def is_python(text: str) -> bool:
    """Whether the Python that runs here can read it as it stands."""
    tree = parse_leniently(text)
    return tree is not None and (
        STAND_IN in text or not ASYNC_ARGUMENT.search(text) or not any(async_arguments(tree))
    )


@lru_cache(maxsize=1024)  # a project's modules are read for their imports, and again for what they do
def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an "invalid escape sequence": the user's own affair
        try:
            return ast.parse(text)
        except SyntaxError:
            if not ASYNC_ARGUMENT.search(text):
                raise
            tree = ast.parse(ASYNC_ARGUMENT.sub(STAND_IN, text))
            _check_stand_ins(tree, text)
            return tree


def forget_trees() -> None:
    """Let go of the trees that are remembered: whoever reads thousands of files one by one needs none of them again."""
    _parse.cache_clear()


@lru_cache(maxsize=1)
def _leave_garbage_at_exit() -> None:
    atexit.register(gc.freeze)


@contextmanager
def garbage_waits() -> Iterator[None]:
    """Trees are large and stay until the end; looking through them for garbage takes a quarter of a conversion.

    Nor are they looked through when the process ends, which would take as long again.
    """
    _leave_garbage_at_exit()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _check_stand_ins(tree: ast.Module, text: str) -> None:
    """SyntaxError where `async` names anything but an argument of a method, which torch has another name for by now."""
    arguments = set(async_arguments(tree))
    for node in ast.walk(tree):
        names = (getattr(node, field, None) for field in ("id", "name", "attr", "arg"))
        if STAND_IN in names and node not in arguments and STAND_IN not in text:
            place = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
            raise SyntaxError("invalid syntax", ("", *place, None))


def nodes_in(node: ast.AST) -> list[ast.AST]:
    """A node and all below it, in the order of ast.walk, which takes twice as long."""
    nodes: list[ast.AST] = [node]
    for inner in nodes:  # which grows
        for field in inner._fields:
            value = getattr(inner, field, None)
            if isinstance(value, ast.AST):
                nodes.append(value)
            elif type(value) is list:
                nodes += [part for part in value if isinstance(part, ast.AST)]
    return nodes


def async_arguments(tree: ast.Module) -> Iterator[ast.keyword]:
    """The arguments of `x.cuda(async=True)` and its like; only where ASYNC_ARGUMENT is in a text there are any."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            yield from (given for given in call.keywords if given.arg == STAND_IN)


def _explain(source: SourceFile, error: SyntaxError | ValueError) -> str:
    if not isinstance(error, SyntaxError):
        return f"{source.name}: not Python ({error})"
    place = source.place(error.lineno or 1).in_file(source.name, error.offset or 1)
    if ASYNC_NAME.search(_line(source.text, error.lineno)):
        return f"{place}: `async` is a keyword since Python 3.7, and cannot be a name any more; rename it"
    if PYTHON_2.search(source.text) or PYTHON_2_LINE.search(_line(source.text, error.lineno)):
        return f"{place}: Python 2; convert it first (with 2to3, which is part of Python 3.0 to 3.12), then run dp2ddp"
    return f"{place}: {error.msg}"


def place_in(text: str, line: int, column: int) -> int:
    """The place in a text of a line (from 1) and a column in bytes, as `ast` counts them."""
    start = [0, *(match.end() for match in LINE_END.finditer(text))][line - 1]
    return start + len(text[start : start + column].encode()[:column].decode(errors="ignore"))


def count_lines(text: str) -> int:
    """The line endings in a text, as Python's tokenizer counts them."""
    return len(LINE_END.findall(text))


def _line(text: str, number: int | None) -> str:
    lines = LINE_END.split(text)
    return lines[number - 1] if number and number <= len(lines) else ""
