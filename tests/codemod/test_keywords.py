"""Whether an argument is given by position or by keyword: a call is one call.

Each row of the table of functions whose argument decides is asked in both spellings; that the keyword is the library's,
and stands where the row says, is asked in test_knowledge.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from dp2ddp.codemod.knowledge.functions import ROWS, Does, FunctionRow
from tests.codemod.programs import WRAP, converted

DECIDES = [
    pytest.param(name, row, id=name) for name, row in ROWS.items() if row.position is not None and row.keyword
]
# What decides otherwise than it does where it is not given, for each kind of argument.
SAYS = {
    "mode": ["'r'", "'rb'", "'w'", "'a'", "'r+'", "given"],
    "flag": ["'r'", "'c'", "given"],
    "seed": ["3", "None", "given"],
    "device": ["0", "'cpu'", "gpu"],
}
ANY = ["None", "'r'", "'w'", "3", "sys.stdout", "given"]


def call_of(name: str, before: int, given: str) -> str:
    words = ", ".join([*(f"a{place}" for place in range(before)), given])
    module = name.rpartition(".")[0]
    home = f"import {module}\n" if not name.startswith("builtins.") else ""
    return f"{WRAP}import sys\n{home}made = {name.removeprefix('builtins.')}({words})\nmade.write(made)\nuse(made)\n"


def outcome(name: str, before: int, given: str) -> tuple[Any, ...]:
    """What a conversion makes of a call: hazards, notes, the helpers that it takes."""
    conversion = converted(call_of(name, before, given))
    line = next(each for each in conversion.after.splitlines() if each.startswith("made ="))
    helper = line.removeprefix("made = ").partition("(")[0]
    codes = [(each.code, each.line) for each in (*conversion.hazards, *conversion.notes)]
    return helper, "(own_" in line, codes


@pytest.mark.parametrize(("name", "row"), DECIDES)
def test_both_spellings_are_one_call(name: str, row: FunctionRow) -> None:
    assert row.position is not None
    for value in SAYS.get(row.keyword, ANY):
        by_place = outcome(name, row.position, value)
        assert outcome(name, row.position, f"{row.keyword}={value}") == by_place, value


def test_it_asks_most_of_the_rows() -> None:
    assert len(DECIDES) > 40
    outcomes = {str(outcome("numpy.random.seed", 0, given)) for given in ("3", "None", "seed=3", "seed=None")}
    assert len(outcomes) == 2  # else nothing would be seen above


# Every function that is done once: called with all its arguments by keywords, as without.
ONCE = [
    pytest.param(name, id=name)
    for name, row in ROWS.items()
    if row.does in (Does.WRITE, Does.SAVE, Does.ANSWER, Does.DOWNLOAD, Does.TRACK, Does.HANDLE_LOG)
    if name != "loguru.logger.remove"  # without a number all ranks do it
]


@pytest.mark.parametrize("name", ONCE)
def test_what_is_done_once_is_so_by_keywords(name: str) -> None:
    assert outcome(name, 2, "'w'") == outcome(name, 0, "first=a0, second=a1, third='w'")
