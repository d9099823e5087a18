"""A difference is judged by what rounding alone makes of the training; on made-up traces, without torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dp2ddp.comparison.compare import Comparison, compare
from dp2ddp.comparison.tolerance import FACTOR, FLOAT32, FLOAT64, Tolerance
from tests.comparison.traces import GRADIENT, trace

STEPS = 6


def drifting(start: float, growth: float) -> list[np.ndarray]:
    return [GRADIENT * (1 + start * growth**step) for step in range(STEPS)]


def judged(
    tmp_path: Path, port: list[np.ndarray], nudged: list[np.ndarray], tolerance: Tolerance = FLOAT64
) -> Comparison:
    reference = trace(tmp_path / "dp", [GRADIENT] * STEPS)
    ranks = [trace(tmp_path / "ddp", port)]
    return compare(reference, ranks, tolerance, trace(tmp_path / "nudged", nudged))


def test_what_grows_no_faster_than_rounding_does_is_rounding(tmp_path: Path) -> None:
    found = judged(tmp_path, drifting(2e-15, 20.0), drifting(1e-15, 20.0))
    assert found.same
    assert found.noise_ratio == pytest.approx(2.0, rel=0.2)
    assert found.largest.size > 1e-10  # a constant would have cried wolf


def test_a_fault_far_smaller_than_a_constant_would_allow_is_found(tmp_path: Path) -> None:
    faulty = [GRADIENT, GRADIENT, *[GRADIENT * (1 + 1e-11)] * (STEPS - 2)]
    found = judged(tmp_path, faulty, drifting(1e-15, 1.0))
    assert found.first.step == 2
    assert found.first.noise_ratio > FACTOR


def test_noise_of_zero_at_a_step_is_not_the_noise_of_the_run(tmp_path: Path) -> None:
    nudged = [GRADIENT * (1 + 1e-9), *[GRADIENT] * (STEPS - 1)]  # equal again, by luck
    assert judged(tmp_path, [GRADIENT * (1 + 1e-8)] * STEPS, nudged).same


def test_noise_is_an_ulp_at_least(tmp_path: Path) -> None:
    reference = trace(tmp_path / "dp", [GRADIENT] * 2)
    for tolerance in (FLOAT64, FLOAT32):
        again = trace(tmp_path / "again", [GRADIENT] * 2)
        noise = compare(reference, [again], tolerance, again).natural
        assert noise.of("gradient", 0) == noise.of("parameter", 9) == noise.of("loss", 1) == tolerance.epsilon


def test_a_run_that_is_lost_on_one_side_makes_no_noise(tmp_path: Path) -> None:
    lost = [GRADIENT, np.full(5, np.nan), *[GRADIENT] * (STEPS - 2)]
    assert not judged(tmp_path, drifting(1e-9, 1.0), lost).same


def test_a_learning_rate_is_no_matter_of_noise(tmp_path: Path) -> None:
    reference = trace(tmp_path / "dp", [GRADIENT] * 2)
    ranks = [trace(tmp_path / "ddp", [GRADIENT] * 2, rates=[0.1, 0.1001])]
    found = compare(reference, ranks, FLOAT64, trace(tmp_path / "nudged", [GRADIENT * 1.5] * 2))
    assert found.first.kind == "learning rate"


def test_a_fault_could_hide_where_noise_has_grown(tmp_path: Path) -> None:
    calm, wild = drifting(1e-15, 1.0), drifting(1e-15, 1000.0)
    assert judged(tmp_path / "calm", calm, calm).hides_from is None
    assert judged(tmp_path / "wild", wild, wild).hides_from == 2


def test_noise_stands_in_the_series(tmp_path: Path) -> None:
    series = judged(tmp_path, drifting(2e-15, 1.0), drifting(1e-12, 1.0)).series
    assert series.noise.tolist() == pytest.approx([1e-12] * STEPS, rel=1e-3)
