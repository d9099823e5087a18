"""What of float32, and of aligned runs, has a part in the verdict."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dp2ddp.comparison.aligned import Aligned
from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.differences import Difference
from dp2ddp.comparison.output_comparison import FilesComparison, TextComparison
from dp2ddp.comparison.verdict import Verdict

EQUAL = Comparison(
    steps=4, rank_steps=(4, 4), largest=None, first=None, also=(), identical_steps=4, identical_buffers=True, rows=()
)  # fmt: skip
OUTSIDE: Any = {
    "stdout": TextComparison(1, None), "printing_ranks": (), "files": FilesComparison(1, ()), "codes": (0, 0)
}  # fmt: skip


def verdict_on(float64: Comparison, float32: Comparison | None) -> Verdict:
    """Of a script that prints and writes the same."""
    return Verdict(**OUTSIDE, world=2, float64=float64, float32=float32, seconds=(1.0, 1.0))


@pytest.mark.parametrize(
    ("kind", "step", "same"),
    [
        pytest.param("gradient", 0, False, id="half precision in the first gradient"),
        pytest.param("gradient", 3, True, id="later it may be rounding that grew"),
        pytest.param("parameter", 0, True, id="RMSprop makes a step of a rounding zero"),
    ],
)
def test_float32_is_judged_by_the_gradients_of_its_first_step(kind: str, step: int, same: bool) -> None:
    difference = Difference(kind, 0.01, step=step, rank=0, name="net.0.bias", allowed=1e-4)
    verdict = verdict_on(EQUAL, dataclasses.replace(EQUAL, first=difference, largest=difference))
    assert verdict.same is same


@pytest.mark.parametrize(("kind", "random"), [("gradient", True), ("steps", False), ("learning rate", False)])
def test_what_parts_without_another_number_is_not_by_random_numbers(kind: str, random: bool) -> None:
    """An early stop that counts each rank, and is not reached with other numbers."""
    parting = dataclasses.replace(EQUAL, first=Difference(kind, 1.0, step=3, rank=0, name=""))
    aligned = Aligned(**OUTSIDE, comparison=EQUAL)
    assert dataclasses.replace(verdict_on(parting, None), aligned=aligned).random_only is random
