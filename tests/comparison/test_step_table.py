"""Numbers that are not finite hide nothing where a port's ranks are put together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dp2ddp.comparison.differences import TINY
from dp2ddp.comparison.script_facts import mean_loss_differences
from dp2ddp.comparison.step_table import is_put_together
from dp2ddp.comparison.tolerance import FLOAT64
from dp2ddp.trace.records import Layout, Step, Vector

LAYOUT = Layout(("a", "b"), ((1,), (1,)), ("float64", "float64"))


def step(gradients: list[float], loss: float = 1.0, **options: Any) -> Step:
    vector = Vector(np.ones(2, dtype=np.uint64), np.array(gradients), None, LAYOUT)
    return Step(
        number=0, optimizer=0, layout=LAYOUT, learning_rates=(), gradients=vector, parameters=vector, losses=(loss,),
        source="grad",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("whole", "parts", "same"),
    [
        (3.0, (2.0, 4.0), True),
        (3.0, (2.0, 5.0), False),
        (math.inf, (2.0, 4.0), False),
        (math.inf, (math.inf, 4.0), True),
        (-math.inf, (math.inf, 4.0), False),
        (3.0, (math.inf, 4.0), False),
        (math.nan, (math.nan, 4.0), True),
        (math.nan, (2.0, 4.0), False),
    ],
)
def test_the_mean_of_the_ranks_losses_is_the_whole_loss(
    whole: float, parts: tuple[float, ...], same: bool
) -> None:
    ranks = [step([1.0, 1.0], part) for part in parts]
    found = list(mean_loss_differences(step([1.0, 1.0], whole), ranks, TINY, FLOAT64))
    assert bool(found) != same
    assert all(not each.size <= each.allowed for each in found)


@pytest.mark.parametrize(
    ("whole", "parts", "same"),
    [
        ([3.0, 1.0], ([2.0, 1.0], [4.0, 1.0]), True),
        ([3.0, 1.0], ([2.0, 1.0], [4.5, 1.0]), False),
        ([math.inf, 1.0], ([2.0, 1.0], [4.0, 1.0]), False),
        ([math.inf, 1.0], ([2.0, 1.0], [4.0, 3.0]), False),
    ],
)
def test_results_of_autograd_grad_are_put_together(
    whole: list[float], parts: tuple[list[float], ...], same: bool
) -> None:
    assert is_put_together(step(whole), [step(part) for part in parts], FLOAT64) == same
