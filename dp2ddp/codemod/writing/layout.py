"""Where continuation lines begin: what was aligned with its open bracket is aligned with it again after edits.

The head of a call grows (`run_on_rank0(f, ...)` of `f(...)`) or shrinks (`Rank0Loader(` of
`torch.utils.data.DataLoader(`). The first print of a tree notes what each continuation line began at; the second one,
after edits, lets it begin there. A line that hangs (at some blanks behind where its bracket's line begins) moves with
that line. Nothing else moves: inside a string there are no lines of this kind.
"""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum, auto

import libcst as cst
from libcst._nodes.internal import CodegenState

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_LINE_START = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")  # in text that is no code, only blanks and comments
# Parts of strings with `{}` in them: a bracket there is none. (Strings of templates came with libcst 1.8.)
_TEXTS = tuple(
    getattr(cst, name) for name in ("FormattedStringText", "TemplatedStringText") if hasattr(cst, name)
)
_BLANKS = re.compile(r"[ \t\f]*")


class _From(Enum):
    """What the blanks before a continuation line are counted from."""

    BRACKET = auto()
    LINE = auto()  # the beginning of the bracket's line
    MARGIN = auto()


@dataclass(frozen=True)
class _Start:
    """Where a line begins."""

    anchor: _From
    more: str  # blanks behind that


NOTHING = nullcontext()
Starts = Mapping[int, Mapping[int, _Start]]  # of each whitespace node, by its id: its lines, by their numbers


@dataclass
class _Bracket:
    """One that is open."""

    before: str  # what stands before it in its line
    hangs: bool = False  # nothing stands behind it in its line

    @property
    def line_start(self) -> str:
        return _leading(self.before)

    @property
    def column(self) -> str:
        """As blanks."""
        return self.line_start + " " * (len(self.before) - len(self.line_start))


class Printer(CodegenState):
    """Prints a tree, and knows what stands in the line so far, and which brackets are open."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__(module.default_indent, module.default_newline)
        self.around: list[cst.CSTNode] = []
        self.brackets: list[_Bracket] = []
        self.line = ""
        self._whitespace_at = 0  # the first token of the whitespace that is printed

    def add_indent_tokens(self) -> None:
        for token in self.indent_tokens:
            self.add_token(token)

    def add_token(self, value: str) -> None:
        self.tokens.append(value)
        if value in _OPENING and not isinstance(self.around[-1], _TEXTS):
            self.brackets.append(_Bracket(self.line))
        elif value in _CLOSING and not isinstance(self.around[-1], _TEXTS):
            self.brackets.pop()
        end = max(value.rfind("\n"), value.rfind("\r"))
        self.line = self.line + value if end < 0 else value[end + 1 :]

    def record_syntactic_position(  # type: ignore[override]  # a context manager, but no generator: they are slow
        self, node: cst.CSTNode, *, start_node: object = None, end_node: object = None
    ) -> AbstractContextManager[None]:
        return NOTHING

    def before_codegen(self, node: cst.CSTNode) -> None:
        self.around.append(node)
        if type(node) is cst.ParenthesizedWhitespace:  # libcst's classes are slow to answer isinstance
            self._whitespace_at = len(self.tokens)
            if self.brackets and len(self.line) == len(self.brackets[-1].before) + 1:
                self.brackets[-1].hangs = True

    def after_codegen(self, node: cst.CSTNode) -> None:
        self.around.pop()
        if type(node) is cst.ParenthesizedWhitespace and self.brackets:
            text = "".join(self.tokens[self._whitespace_at :])
            self.lines_end(node, _LINE_START.split(text), self.brackets[-1])

    def lines_end(self, node: cst.ParenthesizedWhitespace, lines: list[str], bracket: _Bracket) -> None:
        """The rest of a line, lines of comments and empty ones, and the blanks before the next token were printed."""


class LayoutReader(Printer):
    """Notes where continuation lines begin."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__(module)
        self.starts: dict[int, dict[int, _Start]] = {}
        self._at_bracket: int | None = None  # the whitespace that ends right below its bracket

    def add_token(self, value: str) -> None:
        if value and self._at_bracket is not None:
            starts = self.starts[self._at_bracket]
            if value in _CLOSING:
                starts[max(starts)] = _Start(_From.BRACKET, "")
            self._at_bracket = None
        super().add_token(value)

    def lines_end(self, node: cst.ParenthesizedWhitespace, lines: list[str], bracket: _Bracket) -> None:
        starts = self.starts[id(node)] = {}
        for number, line in enumerate(lines[1:], start=1):
            blanks = _leading(line)
            is_empty = number < len(lines) - 1 and not line.strip()
            if is_empty:
                starts[number] = _Start(_From.MARGIN, blanks)
            elif not bracket.hangs and blanks == f"{bracket.column} ":
                starts[number] = _Start(_From.BRACKET, " ")
            elif blanks.startswith(bracket.line_start):
                starts[number] = _Start(_From.LINE, blanks.removeprefix(bracket.line_start))
        if len(lines) - 1 in starts and lines[-1] == bracket.column:
            self._at_bracket = id(node)


class LayoutPrinter(Printer):
    """Lets continuation lines begin where they did."""

    def __init__(self, module: cst.Module, starts: Starts) -> None:
        super().__init__(module)
        self.starts = starts

    def lines_end(self, node: cst.ParenthesizedWhitespace, lines: list[str], bracket: _Bracket) -> None:
        starts = self.starts.get(id(node))
        if starts is None:
            return
        for number, start in starts.items():
            lines[number] = _begin(start, bracket) + lines[number][len(_leading(lines[number])) :]
        self.tokens[self._whitespace_at :] = ["".join(lines)]
        self.line = lines[-1]


def _begin(start: _Start, bracket: _Bracket) -> str:
    match start.anchor:
        case _From.BRACKET:
            return bracket.column + start.more
        case _From.LINE:
            return bracket.line_start + start.more
    return start.more


def _leading(line: str) -> str:
    blanks = _BLANKS.match(line)
    assert blanks is not None
    return blanks[0]
