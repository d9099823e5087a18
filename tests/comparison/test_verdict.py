"""What of float32 has a part in the verdict."""

from __future__ import annotations

import dataclasses

import pytest

from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.differences import Difference
from dp2ddp.comparison.output_comparison import FilesComparison, TextComparison
from dp2ddp.comparison.verdict import Verdict

EQUAL = Comparison(
    steps=4, rank_steps=(4, 4), largest=None, first=None, also=(), identical_steps=4, identical_buffers=True, rows=()
)  # fmt: skip


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
    verdict = Verdict(
        world=2, float64=EQUAL, float32=dataclasses.replace(EQUAL, first=difference, largest=difference),
        stdout=TextComparison(1, None),
        printing_ranks=(), files=FilesComparison(1, ()), codes=(0, 0), seconds=(1.0, 1.0),
    )  # fmt: skip
    assert verdict.same is same
