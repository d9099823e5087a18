"""Where the statements of a cell begin: found without a parser, for a cell may hold lines that are no Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_TOKEN = re.compile(
    r"""
      (?P<text>  (?P<quotes>\"{3}|'{3}) (?:\\.|(?!(?P=quotes)).)* (?:(?P=quotes)|\Z)
              |  "(?:\\(?:\r\n|.)|[^"\\\r\n])*"?
              |  '(?:\\(?:\r\n|.)|[^'\\\r\n])*'?
              |  \#[^\r\n]*
              |  \\(?:\r\n|\r|\n) )
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<end>\r\n|\r|\n)
    """,
    re.VERBOSE | re.DOTALL,
)
# with a backslash at its end it goes on
_LINE = re.compile(r"(?:\\(?:\r\n|\r|\n)|[^\r\n])*(?:\r\n|\r|\n|\Z)")


def statements(text: str, is_special: Callable[[str], bool]) -> Iterator[str]:
    """The statements of a text, and its empty lines, with their endings.

    A line that is special where a statement begins is one for itself.
    """
    at = 0
    while at < len(text):
        match = _LINE.match(text, at)
        assert match
        end = match.end() if is_special(match[0]) else _end_of_statement(text, at)
        yield text[at:end]
        at = end


def _end_of_statement(text: str, at: int) -> int:
    depth = 0
    for token in _TOKEN.finditer(text, at):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth = max(depth - 1, 0)
        elif token["end"] and depth == 0:
            return token.end()
    return len(text)
