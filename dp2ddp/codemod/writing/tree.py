"""The libcst tree of a file that will change, and the nodes in it that `ast` nodes stand for.

Facts are read off `ast`, which parses and walks 10 to 100 times faster; what is written is a libcst tree. One print of
it gives the positions of the nodes that are asked for, the way to each from the module, and the proof that it prints
the file as it was read. (libcst's PositionProvider notes every node and takes as long as five prints.)

What was aligned with its open bracket is aligned with it again after edits: the head of a call grows
(`run_on_rank0(f, ...)` of `f(...)`) or shrinks (`Rank0Loader(` of `torch.utils.data.DataLoader(`). The first print
notes continuation lines with their bracket; the second one, after edits, lets them begin there. A line that hangs (at
some blanks behind where its bracket's line begins) moves with that line. Nothing else moves: inside a string there are
no lines of this kind.
"""

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import libcst as cst
from libcst._nodes.internal import CodegenState

from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.positions import Positions
from dp2ddp.errors import ConversionError
from dp2ddp.source.parsing import ASYNC_ARGUMENT, STAND_IN, async_arguments, is_python

BLANK = re.compile(r"(?:[ \t\r\n\f]|\\\r?\n|#[^\r\n]*)*")  # what may stand between two tokens inside brackets
# Behind the last statement libcst loses lines if one of them begins with a blank.
ODD_TAIL = re.compile(r"(?:^|(?<=\r)(?!\n))[ \t\f\\]", re.MULTILINE)
FRAMES = 10_000  # libcst takes several for a step into the tree, and `ast` none
OPENING, CLOSING = frozenset("([{"), frozenset(")]}")
LINE_START = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")  # in text that is no code, only blanks and comments
# Parts of strings with `{}` in them: a bracket there is none. (Strings of templates came with libcst 1.8.)
TEXTS = tuple(
    getattr(cst, name) for name in ("FormattedStringText", "TemplatedStringText") if hasattr(cst, name)
)
NOTHING = nullcontext()


@dataclass(frozen=True)
class Tree:
    """A module with the nodes that edits are about, and all that lie on the way to them."""

    module: cst.Module
    nodes: Mapping[ast.AST, cst.CSTNode]
    ways: frozenset[int]  # ids of the nodes themselves and of all around them
    has_async: bool  # `x.cuda(async=True)`, which is no Python any more: another word stands for it
    tail: str  # what stands behind the module
    continued: Mapping[int, "_Continued"]

    def printed(self, module: cst.Module) -> str:
        """The text of the module after edits."""
        text = _Printer(module, known=self.continued).text()
        return (text.replace(STAND_IN, "async") if self.has_async else text) + self.tail


def read_tree(script: Module, nodes: Iterable[ast.AST]) -> Tree:
    """Parse a file and find nodes; a ConversionError for what libcst cannot read or print as it is."""
    positions, name, text = script.positions, script.source.name, script.source.text
    tail, has_async = _odd_tail(script), _has_async(script)
    text = text[: len(text) - len(tail)]
    if has_async:
        text = ASYNC_ARGUMENT.sub(STAND_IN, text)  # of the same length
    try:
        module = _with_header_in_body(cst.parse_module(text))
    except cst.ParserSyntaxError as error:
        raise ConversionError(f"{name}: libcst cannot read it ({error.message.splitlines()[-1]})") from error
    if text.endswith("\r"):  # libcst counts it as a line ending everywhere but there
        module = module.with_changes(has_trailing_newline=True)
    places = {node: _place(positions, node) for node in nodes}
    printer = _Printer(module, places.values())
    if (printed := printer.text()) != text:  # it loses a form feed right before a statement, say
        line = os.path.commonprefix([printed, text]).count("\n") + 1
        raise ConversionError(f"{name}:{line}: libcst cannot print this line as it stands; write it plainly")
    matched = {node: printer.matched[place] for node, place in places.items() if place in printer.matched}
    for node in places.keys() - matched.keys():
        line = getattr(node, "lineno", 1)
        raise ConversionError(f"{name}: line {line}: libcst has no node for {positions.source(node)!r}")
    return Tree(module, matched, frozenset(printer.ways), has_async, tail, printer.continued)


def _odd_tail(script: Module) -> str:
    text, body = script.source.text, script.tree.body
    end = script.positions.next_line(body[-1].end_lineno or 1) if body else 0
    return text[end:] if ODD_TAIL.search(text, end) else ""


def _has_async(script: Module) -> bool:
    text = script.source.text
    return STAND_IN not in text and bool(ASYNC_ARGUMENT.search(text)) and any(async_arguments(script.tree))


@contextmanager
def deep_recursion() -> Iterator[None]:
    """As deep as `ast` goes."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _with_header_in_body(module: cst.Module) -> cst.Module:
    """The lines above the first statement belong to it, as they do everywhere else."""
    if not module.body:
        return module
    first = module.body[0]
    first = first.with_changes(leading_lines=(*module.header, *first.leading_lines))
    return module.with_changes(header=(), body=(first, *module.body[1:]))


# --- where nodes are


@dataclass(frozen=True)
class _Place:
    """Where a node begins in the text; expressions and arguments are told apart by their ends."""

    kinds: type[cst.CSTNode] | tuple[type[cst.CSTNode], ...]
    start: int
    end: int | None = None


def _place(positions: Positions, node: ast.AST) -> _Place:
    if isinstance(node, ast.stmt):
        statements = (cst.BaseSmallStatement, cst.BaseCompoundStatement)
        return _Place(statements, positions.offset(node.lineno, node.col_offset))
    span = positions.span(node)
    if has_own_brackets(node, positions):  # which stand beside a libcst node
        blank = BLANK.match(positions.text, span.start + 1)
        assert blank is not None
        return _Place(cst.Tuple if isinstance(node, ast.Tuple) else cst.GeneratorExp, blank.end())
    return _Place(cst.Arg if isinstance(node, ast.keyword) else cst.BaseExpression, span.start, span.end)


def has_own_brackets(node: ast.AST, positions: Positions) -> bool:
    """Whether round brackets are part of an `ast` node: of a generator always, of a tuple if it has any."""
    if isinstance(node, ast.Tuple):
        text = positions.source(node)
        return text.startswith("(") and is_python(f"[{text[1:-1]}\n]")  # that of `(a), (b)` is none
    return isinstance(node, ast.GeneratorExp)


# --- printing


@dataclass
class _Bracket:
    """One that is open."""

    before: str  # what stands before it in its line
    hangs: bool = False  # nothing stands behind it in its line

    @property
    def line(self) -> str:
        """The blanks that its line begins with."""
        return _blanks(self.before)

    @property
    def column(self) -> str:
        """As blanks."""
        return self.line + " " * (len(self.before) - len(self.line))


@dataclass(frozen=True)
class _Continued:
    """Whitespace inside brackets as it was read: the innermost of these, and the lines."""

    bracket: _Bracket
    lines: Sequence[str]

    def moved(self, bracket: _Bracket) -> Iterator[tuple[int, str]]:
        """Lines behind the first, with their numbers, as they begin where the bracket stands elsewhere.

        Those of comments, empty ones, the blanks before the next token.
        """
        column, margin = self.bracket.column, self.bracket.line
        for number, line in enumerate(self.lines[1:], start=1):
            blanks = _blanks(line)
            if number < len(self.lines) - 1 and not line.strip():
                yield number, line
            elif not self.bracket.hangs and blanks in (column, f"{column} "):
                yield number, bracket.column + line.removeprefix(column)
            elif blanks.startswith(margin):
                yield number, bracket.line + line.removeprefix(margin)


class _Printer(CodegenState):
    """Prints a tree, and notes the nodes at the places that are asked for, and continuation lines.

    Lines that are known begin where they did.
    """

    def __init__(
        self,
        module: cst.Module,
        places: Iterable[_Place] = (),
        known: Mapping[int, _Continued] | None = None,
    ) -> None:
        super().__init__(module.default_indent, module.default_newline)
        self.module, self.known = module, known or {}
        self.continued: dict[int, _Continued] = {}  # by the id of the whitespace
        self.matched: dict[_Place, cst.CSTNode] = {}
        self.ways: set[int] = set()
        self._places: dict[int, list[_Place]] = {}
        for place in places:
            self._places.setdefault(place.start, []).append(place)
        self._around: list[cst.CSTNode] = []
        self._brackets: list[_Bracket] = []
        self._line, self._offset = "", 0  # so far
        self._whitespace_at = 0  # the first token of the whitespace that is printed

    def text(self) -> str:
        with deep_recursion():
            self.module._codegen(self)
        return "".join(self.tokens)

    def add_indent_tokens(self) -> None:
        for token in self.indent_tokens:
            self.add_token(token)

    def add_token(self, value: str) -> None:
        self.tokens.append(value)
        self._offset += len(value)
        if value in OPENING and not isinstance(self._around[-1], TEXTS):
            self._brackets.append(_Bracket(self._line))
        elif value in CLOSING and not isinstance(self._around[-1], TEXTS):
            self._brackets.pop()
        end = max(value.rfind("\n"), value.rfind("\r"))
        self._line = self._line + value if end < 0 else value[end + 1 :]

    def record_syntactic_position(  # type: ignore[override]  # the same for most nodes: generators are slow
        self, node: cst.CSTNode, *, start_node: object = None, end_node: object = None
    ) -> AbstractContextManager[None]:
        places = self._places.get(self._offset)
        return self._noted(node, places) if places else NOTHING

    @contextmanager
    def _noted(self, node: cst.CSTNode, places: Iterable[_Place]) -> Iterator[None]:
        yield
        for place in places:
            if isinstance(node, place.kinds) and place.end in (None, self._offset):
                self.matched[place] = node
                self.ways.update(map(id, self._around))

    def before_codegen(self, node: cst.CSTNode) -> None:
        self._around.append(node)
        if type(node) is cst.ParenthesizedWhitespace:  # libcst's classes are slow to answer isinstance
            self._whitespace_at = len(self.tokens)
            if self._brackets and len(self._line) == len(self._brackets[-1].before) + 1:
                self._brackets[-1].hangs = True

    def after_codegen(self, node: cst.CSTNode) -> None:
        self._around.pop()
        if type(node) is not cst.ParenthesizedWhitespace or not self._brackets:
            return
        bracket, lines = self._brackets[-1], LINE_START.split("".join(self.tokens[self._whitespace_at :]))
        if id(node) not in self.known:
            self.continued[id(node)] = _Continued(bracket, lines)
            return
        for number, line in self.known[id(node)].moved(bracket):
            lines[number] = line
        self.tokens[self._whitespace_at :] = ["".join(lines)]
        self._line = lines[-1]


def _blanks(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t\f"))]
