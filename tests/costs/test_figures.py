"""From readings to figures, against numpy and by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dp2ddp.costs.figures import (
    Counted,
    Measured,
    Sameness,
    Sent,
    Timed,
    figures,
    read,
    spread,
    with_rows_of,
    write,
)

PLAIN = Timed(
    virtual=True, steps=7, seconds=(0.1, 0.2, 0.6), waiting=(0.0, 0.1, 0.2), rows=(4, 4, 2),
    evaluated=(False, False, False), cpu=1.2, resident=100,
)  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_a_spread_is_numpys(count: int) -> None:
    seconds = np.random.default_rng(count).random(count)
    found = spread(seconds.tolist())
    expected = [*np.quantile(seconds, [0.5, 0.1, 0.9]), seconds.mean()]
    assert [found.median, found.p10, found.p90, found.mean] == pytest.approx(expected, rel=1e-12)


def test_rounds_are_one_series_and_ranks_one_machine() -> None:
    other = replace(PLAIN, rows=(3, 3, 1), waiting=(0.3, 0.0, 0.0), cpu=0.6, resident=90)
    found = figures("ddp", 2, [(PLAIN, other), (PLAIN, other)])
    assert found.seconds == PLAIN.seconds * 2
    assert found.rows == pytest.approx((8 + 2 + 7) * 2 / 6)
    assert found.rate == pytest.approx(found.rows / 0.3)
    assert found.waiting == pytest.approx(0.1)  # of the rank that waits longest, in all: 0.3 in three steps
    assert found.cpu == pytest.approx(2 * 1.8 / 6)
    assert found.resident == (100, 90)
    assert found.collectives is None


def test_steps_with_an_evaluation_are_left_out_unless_most_have_one() -> None:
    once = replace(PLAIN, evaluated=(False, False, True))
    found = figures("dp", 2, [(once,)])
    assert (found.seconds, found.left_out, found.rows) == ((0.1, 0.2), 1, 4)
    always = replace(PLAIN, evaluated=(True, True, False))
    assert figures("dp", 2, [(always,)]).left_out == 0


def test_real_devices_are_added_up_over_ranks_and_the_highest_round_counts() -> None:
    low, high = (replace(PLAIN, devices=devices) for devices in ((5, 1, 0), (7, 0, 0)))
    assert figures("ddp", 2, [(low, low), (high, low)]).devices == (12, 2)


def test_the_heaviest_rank_speaks_for_collectives() -> None:
    light = Counted(6, {"all_reduce": Sent(1, 10)}, devices=(4, 0))
    heavy = Counted(6, {"all_reduce": Sent(1, 10), "send": Sent(1, 5)}, devices=(0, 6))
    found = figures("ddp", 2, [(PLAIN, PLAIN)], (light, heavy))
    assert found.sent == Sent(2, 15)
    assert found.devices == (4, 6)


def test_the_speed_up_is_that_of_mean_steps() -> None:
    slow, fast = (replace(PLAIN, seconds=seconds) for seconds in ((0.4, 0.4, 0.4), (0.1, 0.1, 0.1)))
    dp, ddp = figures("dp", 4, [(slow,)]), figures("ddp", 4, [(fast,) * 4])
    found = Measured(4, dp, ddp, Sameness("same", 4))
    assert found.speed_up == pytest.approx(4)


def test_a_wrapper_that_shows_no_rows_has_those_of_the_original() -> None:
    dp, ddp = figures("dp", 2, [(PLAIN,)]), figures("ddp", 2, [(replace(PLAIN, rows=(0, 0, 0)),)])
    assert with_rows_of(dp, ddp).rows == dp.rows
    assert with_rows_of(ddp, dp) is dp


def test_readings_come_back_as_they_were_written(tmp_path: Path) -> None:
    counted = Counted(6, {"send": Sent(1, 2.5)}, {"weights": Sent(1, 4)}, (1, 2), 44)
    write(counted, tmp_path / "counted", 0)
    write(PLAIN, tmp_path / "timed", 1)
    assert read(tmp_path / "counted", range(2), Counted) == (counted,)
    assert read(tmp_path / "timed", range(2), Timed) == (PLAIN,)
