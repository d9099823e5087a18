"""What rules have found, with its place; and the plan of a file: data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dp2ddp.codemod.edits import Edit, Finding, TextEdit
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.reasons import Reason
from dp2ddp.source.files import CellPlace

WRAP_RULE = "DDP201"
WRAP_RULES = (WRAP_RULE, "DDP204", "DDP702")  # its functions, idiomatic


@dataclass(frozen=True)
class Acceptance:
    """That somebody answered a hazard, how, and why."""

    by: str  # comment or option
    reason: str = ""

    def __str__(self) -> str:
        how = "a comment" if self.by == "comment" else "--accept"
        return f"{how}: {self.reason}" if self.reason else how


@dataclass(frozen=True)
class Planned:
    """A finding with its place and the code of the rule that found it."""

    code: str
    line: int  # of the text
    column: int  # from 1, in characters
    finding: Finding
    place: CellPlace  # the line as a person looks for it: of the file, or of a notebook's cell
    file: str | None = None  # a local module, where it is not the entry script
    acceptance: Acceptance | None = None  # a hazard's, where somebody has answered it

    @property
    def because(self) -> str:
        return str(self.finding.because)

    @property
    def helpers(self) -> tuple[str, ...]:
        return self.finding.helpers if isinstance(self.finding, Edit) else ()

    @property
    def why(self) -> str:
        """The name of the reason; "" of the only one that the rule has."""
        return self.finding.because.name if isinstance(self.finding.because, Reason) else ""


def listed(edits: Iterable[Planned]) -> list[Planned]:
    """Edits as they are listed and counted: several small things that a rule does to one line are one of them."""
    return list({(edit.code, edit.file, edit.line, edit.because): edit for edit in edits}.values())


@dataclass(frozen=True)
class Plan:
    """What will change in a file, what stands in the way, and what its owner should know."""

    module: Module
    edits: tuple[Planned, ...]
    hazards: tuple[Planned, ...]  # open ones
    accepted: tuple[Planned, ...]  # hazards that a person has answered
    notes: tuple[Planned, ...]
    renamed: Mapping[str, str]  # helpers whose names the file uses otherwise

    @property
    def wraps_converted(self) -> bool:
        """Whether anything of DataParallel itself is converted; without that the rest makes no sense."""
        return any(edit.code in WRAP_RULES for edit in self.edits)

    @property
    def says_something(self) -> bool:
        return bool(self.hazards or self.accepted or self.notes)

    @property
    def text_edits(self) -> list[TextEdit]:
        return [edit.finding for edit in self.edits if isinstance(edit.finding, Edit)]

    @property
    def helpers(self) -> frozenset[str]:
        return frozenset(name for edit in self.edits for name in edit.helpers)


def place(file: Module, code: str, finding: Finding) -> Planned:
    """A finding with its place in a file."""
    node = finding.node
    start = file.positions.span(node).start
    line = getattr(node, "lineno", 1)
    column = start - file.positions.line_starts[line - 1] + 1
    return Planned(code, line, column, finding, file.source.place(line), local_file(file))


def local_file(file: Module) -> str | None:
    """The path of a local module; None of the script itself."""
    return None if file is file.program.entry else file.shown
