"""Signatures that are arithmetic alone; the others are tested with planted faults (tests/mutations)."""

from __future__ import annotations

import random

import pytest

from dp2ddp.comparison.causes.gradient_signatures import counted


@pytest.mark.parametrize("counts", [(13, 18), (31, 7, 12), (5, 9, 2, 11)])
def test_a_mean_by_local_counts_tells_the_counts(counts: tuple[int, ...]) -> None:
    losses = [1.0 + random.Random(place).random() for place in range(len(counts))]
    whole = sum(count * loss for count, loss in zip(counts, losses, strict=True)) / sum(counts)
    assert counted(whole, losses) == counts


@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_loss_that_merely_lies_between_has_no_counts(world: int) -> None:
    losses = [1.0 + random.Random(place).random() for place in range(world)]
    assert counted(sum(losses) / world + 0.01 * random.Random(7).random(), losses) == ()
