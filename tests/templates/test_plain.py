"""The plain and lean helpers under torchrun: workers that are spawned, errors that are caught, models that go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ranks import Ending, torchrun

PROGRAM = Path(__file__).with_name("plain_program.py")


@pytest.fixture(scope="module")
def ending() -> Ending:
    return torchrun(PROGRAM)


def said(ending: Ending, words: str) -> list[str]:
    """What the ranks said, in rank order, behind these words."""
    lines = sorted(line.split(" ", 1) for line in ending.stderr.splitlines() if f" {words}" in line[:30])
    return [text.removeprefix(words).strip() for _, text in lines]


@pytest.mark.torchrun
class TestTwoRanks:
    def test_it_ends_well_and_is_heard_once(self, ending: Ending) -> None:
        assert (ending.code, ending.stdout, ending.left_behind) == (0, "café ✓\n", 0), ending.stderr[-3000:]

    def test_a_spawned_worker_is_no_rank(self, ending: Ending) -> None:
        assert said(ending, "sums") == ["[1.0, 1.0]"] * 2

    def test_views_of_a_batch_stay_views(self, ending: Ending) -> None:
        changed = "[1.0, 1.0, 1.0]"
        assert said(ending, "views") == [f"[(65536.0, {changed}), (8.0, {changed})]"] * 2

    def test_a_forward_that_fails_leaves_the_scripts_random_numbers_where_they_were(
        self, ending: Ending
    ) -> None:
        first, second = said(ending, "drew")
        assert first == second

    def test_lean_models_begin_alike(self, ending: Ending) -> None:
        assert said(ending, "begins at") == ["[[0.0, 0.0, 0.0]]"] * 2

    def test_a_model_that_nobody_holds_goes(self, ending: Ending) -> None:
        assert said(ending, "let go") == ["", ""]
