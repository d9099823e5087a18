"""Text with holes: what an edit means in characters, and how nested edits are put together.

Why not libcst: facts come from `ast` anyway (10 to 100 times faster), and replacing exact character
ranges leaves every other byte alone by construction, where a printed tree has to be trusted to do so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dp2ddp.codemod.facts.positions import Span
from dp2ddp.errors import ConversionError


@dataclass(frozen=True)
class Splice:
    """New text for a span; spans among the pieces are holes that keep their own, edited, text."""

    span: Span
    pieces: tuple[str | Span, ...]
    drops: bool = False  # text is removed on purpose: edits inside it vanish with it
    leads: bool = False  # a statement: it stands before whatever else is inserted, or begins, at its place

    @property
    def inserts(self) -> bool:
        return self.span.start == self.span.end

    def hole_for(self, other: Splice) -> Span | None:
        if other.leads and other.span.start == self.span.start:
            return None
        holes = (piece for piece in self.pieces if isinstance(piece, Span))
        return next((hole for hole in holes if hole.holds(other.span)), None)


def splice_text(text: str, splices: Sequence[Splice]) -> str:
    """The text with all splices carried out."""
    return _render(text, Span(0, len(text)), _in_order(splices))


def _in_order(splices: Sequence[Splice]) -> list[Splice]:
    """From left to right, insertions first, statements first of these, wide before narrow; equals keep their order."""
    unique = list(dict.fromkeys(splices))
    return sorted(unique, key=_place)


def _place(splice: Splice) -> tuple[int, bool, bool, int]:
    return splice.span.start, not splice.inserts, not splice.leads, -splice.span.end


def _render(text: str, span: Span, splices: list[Splice]) -> str:
    """The edited text of a span, from the splices that lie in it."""
    written: list[str] = []
    position = span.start
    while splices:
        outer = _next(splices)
        inner = [splice for splice in splices if splice is not outer and _within(splice, outer)]
        splices = [splice for splice in splices if splice is not outer and splice not in inner]
        written.append(text[position : outer.span.start])
        written.append(_fill(text, outer, inner))
        position = outer.span.end
    written.append(text[position : span.end])
    return "".join(written)


def _next(splices: list[Splice]) -> Splice:
    """The leftmost splice; of an insertion and a replacement that has a hole for it, the replacement."""
    first = splices[0]
    if not first.inserts:
        return first
    around = (splice for splice in splices if splice.span.start == first.span.start and not splice.inserts)
    return next((splice for splice in around if splice.hole_for(first)), first)


def _within(splice: Splice, outer: Splice) -> bool:
    if outer.inserts:
        return False
    if outer.hole_for(splice):
        return True
    if splice.inserts:
        return outer.span.start < splice.span.start < outer.span.end
    return splice.span.start < outer.span.end


def _fill(text: str, outer: Splice, inner: list[Splice]) -> str:
    for splice in inner:
        lost = outer.hole_for(splice) is None and (not outer.drops or splice.span == outer.span)
        if lost or not outer.span.holds(splice.span):
            clash = text[splice.span.start : splice.span.end]
            raise ConversionError(
                f"two rules want to change the same text: {clash!r}; please report this script"
            )
    filled = ""
    for piece in outer.pieces:
        if isinstance(piece, Span):
            filled += _render(text, piece, [splice for splice in inner if piece.holds(splice.span)])
        else:
            filled += piece
    return filled
