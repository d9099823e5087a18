"""The corpus against what real scripts contain."""

from __future__ import annotations

import pytest
from corpus.cases import all_cases
from corpus.idioms import IDIOMS, PAGE, Entry, missing, page
from corpus.outcomes import outcome

CASES = all_cases()
ROWS = {idiom.text for idiom in IDIOMS}


def test_the_rows_are_read_whole() -> None:
    assert len(IDIOMS) == len(ROWS) == 187
    assert max(IDIOMS, key=lambda idiom: idiom.repositories).text == "torch.save"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_tag_of_a_script_is_a_row(case) -> None:
    assert [tag for tag in case.idioms if tag not in ROWS] == []


def test_every_idiom_of_two_repositories_is_in_two_scripts() -> None:
    entries = [Entry(case.name, case.idioms, "") for case in CASES]
    lacking = [f"{idiom.group}: {idiom.text} ({idiom.repositories})" for idiom in missing(entries)]
    assert not lacking, f"{len(lacking)} rows need more scripts:\n" + "\n".join(lacking)


def test_the_page_is_fresh() -> None:
    """If it is not: run `python3 tests/corpus/idioms.py`."""
    entries = [Entry(case.name, case.idioms, outcome(case).words) for case in CASES]
    assert PAGE.read_text(encoding="utf-8") == page(entries)
