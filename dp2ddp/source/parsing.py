"""Text to `ast`, with the one error line a person needs when it is not Python 3."""

from __future__ import annotations

import ast
import re
import warnings
from functools import lru_cache

from dp2ddp.errors import SourceError
from dp2ddp.source.files import SourceFile

# `async` became a keyword in Python 3.7, so `.cuda(async=True)` of older scripts is no Python any more.
ASYNC_ARGUMENT = re.compile(r"\basync(?=\s*=[^=])")
STAND_IN = "asynk"  # of the same length, so that every position in the tree holds for the text too
PYTHON_2 = re.compile(
    r"^\s*(print\s+[^\s(=]|exec\s+[\"'\w]|raise\s+\w+\s*,|except\s+[\w.]+\s*,\s*\w+\s*:)", re.MULTILINE
)


def parse(source: SourceFile) -> ast.Module:
    """The tree of a script; `SourceError` names file, line and column if it has none."""
    try:
        return _parse(source.text)
    except (SyntaxError, ValueError) as error:
        raise SourceError(_explain(source, error)) from error
    except RecursionError as error:
        raise SourceError(f"{source.name}: nested too deeply to be read") from error


def parse_leniently(text: str) -> ast.Module | None:
    """The tree, or None where there is none."""
    try:
        return _parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=64)  # a project's modules are read for their imports, and again for what they do
def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # SyntaxWarnings ("invalid escape sequence") are the user's own affair
        try:
            return ast.parse(text)
        except SyntaxError:
            if not ASYNC_ARGUMENT.search(text):
                raise
            return ast.parse(ASYNC_ARGUMENT.sub(STAND_IN, text))


def _explain(source: SourceFile, error: SyntaxError | ValueError) -> str:
    if not isinstance(error, SyntaxError):
        return f"{source.name}: not Python ({error})"
    place = source.place(error.lineno or 1).in_file(source.name, error.offset or 1)
    if PYTHON_2.search(source.text):
        return f"{place}: Python 2; convert it first (with 2to3, which is part of Python 3.0 to 3.12), then run dp2ddp"
    return f"{place}: {error.msg}"
