"""The libcst tree of a file that will change, and the nodes in it that `ast` nodes stand for.

Facts are read off `ast`, which parses and walks 10 to 100 times faster; what is written is a libcst tree. One print of
it gives the positions of the nodes that are asked for, the way to each from the module, and the proof that it prints
the file as it was read. (libcst's PositionProvider notes every node and takes as long as five prints.)
"""

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType

import libcst as cst

from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.positions import Positions
from dp2ddp.codemod.writing.layout import NOTHING, LayoutPrinter, LayoutReader, Starts
from dp2ddp.errors import ConversionError
from dp2ddp.source.parsing import ASYNC_ARGUMENT, STAND_IN, async_arguments, is_python

BLANK = re.compile(r"(?:[ \t\r\n\f]|\\\r?\n|#[^\r\n]*)*")  # what may stand between two tokens inside brackets
# their brackets are part of an `ast` node, and beside a libcst node
IN_BRACKETS = (ast.Tuple, ast.GeneratorExp)
# Behind the last statement libcst loses lines if one of them begins with a blank.
ODD_TAIL = re.compile(r"(?:^|(?<=\r)(?!\n))[ \t\f\\]", re.MULTILINE)
FRAMES = 10_000  # libcst takes several for a step into the tree, and `ast` none

_Kinds = type[cst.CSTNode] | tuple[type[cst.CSTNode], ...]
_STATEMENT = (cst.BaseSmallStatement, cst.BaseCompoundStatement)


@dataclass(frozen=True)
class Tree:
    """A module with the nodes that edits are about, and all that lie on the way to them."""

    module: cst.Module
    nodes: Mapping[ast.AST, cst.CSTNode]
    ways: frozenset[int]  # ids of the nodes themselves and of all around them
    has_async: bool  # `x.cuda(async=True)`, which is no Python any more: another word stands for it
    tail: str  # what stands behind the module
    starts: Starts  # of continuation lines

    def printed(self, module: cst.Module) -> str:
        """The text of the module after edits."""
        printer = LayoutPrinter(module, self.starts)
        with deep_recursion():
            module._codegen(printer)
        text = "".join(printer.tokens)
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
    with deep_recursion():
        module._codegen(printer)
    if (printed := "".join(printer.tokens)) != text:  # it loses a form feed right before a statement, say
        line = os.path.commonprefix([printed, text]).count("\n") + 1
        raise ConversionError(f"{name}:{line}: libcst cannot print this line as it stands; write it plainly")
    matched = {node: printer.matched[place] for node, place in places.items() if place in printer.matched}
    for node in places.keys() - matched.keys():
        line = getattr(node, "lineno", 1)
        raise ConversionError(f"{name}: line {line}: libcst has no node for {positions.source(node)!r}")
    return Tree(module, matched, frozenset(printer.ways), has_async, tail, printer.starts)


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


@dataclass(frozen=True)
class _Place:
    """Where a node begins in the text; expressions and arguments are told apart by their ends."""

    kinds: _Kinds
    start: int
    end: int | None


def _place(positions: Positions, node: ast.AST) -> _Place:
    if isinstance(node, ast.stmt):
        return _Place(_STATEMENT, positions.offset(node.lineno, node.col_offset), None)
    span = positions.span(node)
    if isinstance(node, ast.keyword):
        return _Place(cst.Arg, span.start, span.end)
    if isinstance(node, IN_BRACKETS) and has_own_brackets(node, positions):
        blank = BLANK.match(positions.text, span.start + 1)
        assert blank is not None
        kind = cst.Tuple if isinstance(node, ast.Tuple) else cst.GeneratorExp
        return _Place(kind, blank.end(), None)
    return _Place(cst.BaseExpression, span.start, span.end)


def has_own_brackets(node: ast.AST, positions: Positions) -> bool:
    """Whether round brackets are part of an `ast` node: of a generator always, of a tuple if it has any."""
    if isinstance(node, ast.Tuple):
        text = positions.source(node)
        return text.startswith("(") and is_python(f"[{text[1:-1]}\n]")  # that of `(a), (b)` is none
    return isinstance(node, ast.GeneratorExp)


class _Printer(LayoutReader):
    """Prints a tree, and notes the nodes at the places that are asked for."""

    def __init__(self, module: cst.Module, places: Iterable[_Place]) -> None:
        super().__init__(module)
        self.offset = 0
        self.matched: dict[_Place, cst.CSTNode] = {}
        self.ways: set[int] = set()
        self._starts: dict[int, list[_Place]] = {}
        for place in places:
            self._starts.setdefault(place.start, []).append(place)

    def add_token(self, value: str) -> None:
        super().add_token(value)
        self.offset += len(value)

    def record_syntactic_position(  # type: ignore[override]
        self, node: cst.CSTNode, *, start_node: object = None, end_node: object = None
    ) -> AbstractContextManager[None]:
        places = self._starts.get(self.offset)
        if places:
            places = [place for place in places if isinstance(node, place.kinds)]
        return _Noting(self, node, places) if places else NOTHING

    def note(self, place: _Place, node: cst.CSTNode) -> None:
        self.matched[place] = node
        for around in reversed(self.around):
            if id(around) in self.ways:
                return
            self.ways.add(id(around))


@dataclass
class _Noting:
    """While a node prints itself."""

    printer: _Printer
    node: cst.CSTNode
    places: list[_Place] = field(default_factory=list)

    def __enter__(self) -> None:
        for place in self.places:
            if place.end is None:
                self.printer.note(place, self.node)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for place in self.places:
            if place.end == self.printer.offset:
                self.printer.note(place, self.node)
