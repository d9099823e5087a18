"""Which samples are taken again before the others are taken once."""

from __future__ import annotations

import random

import pytest

from dp2ddp.comparison.causes.batch_signatures import goes_round, is_in_order, ranks_take_again, takes_again

SAMPLES = range(60)


def shuffled(epoch: int) -> list[int]:
    return random.Random(epoch).sample(SAMPLES, len(SAMPLES))


def drawn(seed: int) -> list[int]:
    return random.Random(seed).choices(SAMPLES, k=3 * len(SAMPLES))


def test_an_epoch_takes_each_once_and_weights_do_not() -> None:
    assert not takes_again([*shuffled(0), *shuffled(1)])
    assert not takes_again(shuffled(0)[:20])
    assert takes_again(drawn(0))


@pytest.mark.parametrize("world", [2, 3, 4, 8])
def test_ranks_that_share_out_an_epoch_do_not_take_again(world: int) -> None:
    epochs = [shuffled(epoch) for epoch in range(5)]
    assert not ranks_take_again(
        [[i for epoch in epochs for i in epoch[rank::world]] for rank in range(world)]
    )
    assert not ranks_take_again([[*epochs[rank], *epochs[rank + 1]] for rank in range(min(world, 4))])
    assert not ranks_take_again([[i for epoch in epochs for i in epoch]] * world)
    assert ranks_take_again([drawn(3)] * world)
    assert ranks_take_again([drawn(rank) for rank in range(world)])


def test_an_epoch_in_order_is_told_from_a_shuffled_one() -> None:
    assert is_in_order([0, 2, 4, 6, 0, 2, 4, 6])
    assert is_in_order([1, 3, 5])
    assert not is_in_order([4, 2, 0, 6])
    assert not is_in_order(shuffled(0))


def test_an_order_that_comes_again_is_one_order() -> None:
    """Without set_epoch, a rank's share of an epoch comes again, less what drop_last leaves out."""
    share = shuffled(0)[:10]
    assert goes_round(share * 3)
    assert goes_round([*share, *share, *share[:4]])
    assert not goes_round(share)
    assert goes_round([*share, *share[:5]])  # half of a second epoch
    assert not goes_round([*share, *share[:4]])
    assert not goes_round([*shuffled(0), *shuffled(1)])
    assert not goes_round(drawn(0))
