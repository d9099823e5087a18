"""Text that edits take away, and the code that they bring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dp2ddp.codemod.edits import DropArgument, Finding, Remove, Replace
from dp2ddp.codemod.model.positions import Positions, Span


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
    return " ".join(_parts(edits))


def _parts(edits: Iterable[Finding]) -> Iterator[str]:
    for edit in edits:
        for part in ("code", "helper", "test"):
            yield str(getattr(edit, part, ""))
