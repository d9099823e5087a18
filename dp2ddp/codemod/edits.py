"""The vocabulary of change: small pieces of data, so that rules can work on one call without knowing each other.

Every piece carries its `because`, which the person reads in the report.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dp2ddp.codemod.model.positions import Positions, Span
from dp2ddp.codemod.reasons import Reason


@dataclass(frozen=True)
class Edit:
    """A change of a file; two rules may want the same, each for its own reason."""

    helpers: tuple[str, ...] = field(default=(), kw_only=True, compare=False)  # that its code calls


@dataclass(frozen=True)
class Replace(Edit):
    """Put `code` in the place of an expression; a hole `{name}` is filled with the edited text of a node."""

    node: ast.AST
    code: str
    because: str | Reason = field(compare=False)  # a text: the only one that its rule has
    holes: Mapping[str, ast.AST] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class PassTo(Edit):
    """Turn `f(a, b)` into `helper(f, a, b)`; the arguments stay as they are written."""

    node: ast.Call
    helper: str
    because: str = field(compare=False)


@dataclass(frozen=True)
class SetArgument(Edit):
    """Give a call a keyword argument, after those it has."""

    node: ast.Call
    keyword: str
    code: str
    because: str = field(compare=False)


@dataclass(frozen=True)
class DropArgument(Edit):
    """Take an argument (positional expression or keyword) out of a call."""

    node: ast.expr | ast.keyword
    call: ast.Call
    because: str = field(compare=False)


@dataclass(frozen=True)
class Remove(Edit):
    """Take a whole simple statement out; `pass` takes its place where a block would be empty."""

    node: ast.stmt
    because: str = field(compare=False)


@dataclass(frozen=True)
class InsertBefore(Edit):
    """Put a line before a statement, indented like it; `apart`: at module level, with empty lines around it."""

    node: ast.stmt
    code: str
    because: str = field(compare=False)
    apart: bool = True


@dataclass(frozen=True)
class InsertAfter(Edit):
    """Put a line after a statement, indented like it."""

    node: ast.stmt
    code: str
    because: str = field(compare=False)


@dataclass(frozen=True)
class Decorate(Edit):
    """Put a decorator right above a class or a function, under those it has."""

    node: ast.ClassDef | ast.FunctionDef
    code: str
    because: str = field(compare=False)


@dataclass(frozen=True)
class Guard(Edit):
    """Put statements that follow each other in one block, `node` to `last`, under `if test:`."""

    node: ast.stmt
    last: ast.stmt
    test: str
    because: str = field(compare=False)


@dataclass(frozen=True)
class DropImport(Edit):
    """Take names out of an import; others stay."""

    node: ast.Import | ast.ImportFrom
    names: tuple[str, ...]  # as the file knows them
    because: str = field(compare=False)


@dataclass(frozen=True, eq=False)
class Hazard:
    """Something that cannot be converted safely: what stands there, and what to do about it."""

    node: ast.AST
    because: Reason

    @property
    def advice(self) -> str:
        return self.because.advice


@dataclass(frozen=True, eq=False)
class Note:
    """Something worth knowing that does not stand in the way."""

    node: ast.AST
    because: Reason
    of_other_name: bool = False  # true of a copy beside the script alone: in a project files keep their names


TextEdit = (
    Replace
    | PassTo
    | SetArgument
    | DropArgument
    | Remove
    | InsertBefore
    | InsertAfter
    | Decorate
    | Guard
    | DropImport
)
Finding = TextEdit | Hazard | Note
CODE = ("code", "helper", "test")  # the parts of edits that hold new code


@dataclass(frozen=True)
class Gone:
    """Text that an edit takes away, and the holes in which text stays."""

    span: Span
    holes: tuple[Span, ...] = ()

    def holds(self, span: Span) -> bool:
        """Whether all of a piece of text goes with it."""
        return self.span.holds(span) and not any(hole.holds(span) for hole in self.holes)


def gone_with(edit: Finding, positions: Positions) -> Gone | None:
    """What an edit takes away, if anything."""
    if isinstance(edit, (DropArgument, Remove)):
        return Gone(positions.span(edit.node))
    if isinstance(edit, Replace):
        return Gone(positions.span(edit.node), tuple(positions.span(hole) for hole in edit.holes.values()))
    return None


def new_code(edits: Iterable[Finding]) -> str:
    """All code that edits bring, in one text."""
    return " ".join(str(getattr(edit, part, "")) for edit in edits for part in CODE)


@dataclass(frozen=True)
class Header:
    """What comes behind the last import of a file."""

    lines: tuple[str, ...]
    behind: ast.stmt | None  # the last import, or the docstring; None: before the first statement
