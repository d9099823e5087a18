"""The corpus against what real scripts contain."""

from __future__ import annotations

from corpus.cases import all_cases
from corpus.idioms import IDIOMS, Entry, missing, outcomes, page

CASES = all_cases()
ROWS = {idiom.text for idiom in IDIOMS}


def test_the_rows_are_read_whole() -> None:
    assert len(IDIOMS) == len(ROWS) == 187
    assert max(IDIOMS, key=lambda idiom: idiom.repositories).text == "torch.save"


def test_every_tag_of_a_script_is_a_row() -> None:
    assert {case.name: tag for case in CASES for tag in case.idioms if tag not in ROWS} == {}


def test_every_idiom_of_two_repositories_is_in_two_scripts() -> None:
    entries = [Entry(case.name, case.idioms, "") for case in CASES]
    lacking = [f"{idiom.group}: {idiom.text} ({idiom.repositories})" for idiom in missing(entries)]
    assert not lacking, f"{len(lacking)} rows need more scripts:\n" + "\n".join(lacking)


def test_the_page_has_a_line_for_each_idiom() -> None:
    lines = page([Entry(case.name, case.idioms, "") for case in CASES]).splitlines()
    assert sum(": " in line and " of the 95, " in line for line in lines) == len(IDIOMS)


def test_what_becomes_of_each_script_is_a_line_and_counted() -> None:
    lines = outcomes([Entry(case.name, case.idioms, "converted") for case in CASES]).splitlines()
    assert [case.name for case in CASES if f"| {case.name} | converted |" not in lines] == []
    assert f"- converted: {len(CASES)}" in lines
