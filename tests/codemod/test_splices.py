"""Nested edits on exact ranges: what is not in a range stays, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2ddp.codemod.facts.positions import Span
from dp2ddp.codemod.splices import Splice, splice_text
from dp2ddp.errors import ConversionError


def test_a_hole_keeps_its_edited_text() -> None:
    outer = Splice(Span(0, 6), ("g(", Span(2, 5), ")"), drops=True)
    inner = Splice(Span(3, 4), ("X",))

    assert splice_text("f(abc)", [outer, inner]) == "g(aXc)"


def test_a_hole_may_be_the_whole() -> None:
    assert (
        splice_text("abc", [Splice(Span(0, 3), ("(", Span(0, 3), ")")), Splice(Span(1, 2), ("X",))])
        == "(aXc)"
    )


def test_insertions_at_one_place_keep_their_order() -> None:
    assert splice_text("ab", [Splice(Span(1, 1), ("1",)), Splice(Span(1, 1), ("2",))]) == "a12b"


def test_an_insertion_before_a_replacement() -> None:
    assert splice_text("ab", [Splice(Span(1, 2), ("X",)), Splice(Span(1, 1), ("1",))]) == "a1X"


def test_a_statement_stands_before_what_begins_at_its_place() -> None:
    """`feed(Thread)(target=run)`, of a statement in front of which the ranks join."""
    wrapped = Splice(Span(0, 2), ("g(", Span(0, 2), ")"), drops=True)
    inserted, statement = Splice(Span(0, 0), ("i ",)), Splice(Span(0, 0), ("join()\n",), leads=True)
    assert splice_text("ab", [inserted, wrapped, statement]) == "join()\ng(i ab)"


def test_the_same_splice_twice_is_one() -> None:
    assert splice_text("ab", [Splice(Span(0, 1), ("X",))] * 2) == "Xb"


@pytest.mark.parametrize(
    "splices",
    [
        pytest.param([Splice(Span(0, 2), ("X",)), Splice(Span(1, 3), ("Y",))], id="overlap"),
        pytest.param(
            [Splice(Span(0, 2), ("X",), drops=True), Splice(Span(0, 2), ("Y",), drops=True)], id="same text"
        ),
        pytest.param([Splice(Span(0, 3), ("X",)), Splice(Span(1, 2), ("Y",))], id="lost"),
    ],
)
def test_what_cannot_be_combined_is_refused(splices: list[Splice]) -> None:
    with pytest.raises(ConversionError, match="two rules"):
        splice_text("abcd", splices)


@settings(deadline=None)  # a busy machine is no failure
@given(st.text(), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3), st.text(max_size=3)), max_size=8))
def test_everything_outside_of_the_ranges_is_untouched(text: str, wanted: list[tuple[int, int, str]]) -> None:
    splices: list[Splice] = []
    position = 0
    expected = ""
    for gap, length, new in wanted:  # ranges side by side, from left to right
        start = min(position + gap + 1, len(text))
        end = min(start + length, len(text))
        splices.append(Splice(Span(start, end), (new,), drops=True))
        expected += text[position:start] + new
        position = end
    distinct = {(splice.span, splice.pieces) for splice in splices}
    if len(distinct) < len(splices) or len({splice.span.start for splice in splices}) < len(splices):
        return  # several at the end of a short text

    assert splice_text(text, splices) == expected + text[position:]
