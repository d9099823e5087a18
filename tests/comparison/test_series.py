"""The series of a comparison: one row of figures for each step, none lost; on made-up traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dp2ddp.comparison.compare import compare
from dp2ddp.comparison.series import Series
from dp2ddp.comparison.tolerance import FLOAT64
from dp2ddp.trace.records import Layout, Trace
from tests.comparison.traces import GRADIENT, trace


def series_of(reference: Trace, ranks: Sequence[Trace]) -> Series:
    series = compare(reference, ranks, FLOAT64).series
    assert series is not None
    return series


def test_same_bits_are_a_difference_of_zero(tmp_path: Path) -> None:
    series = series_of(trace(tmp_path / "dp", [GRADIENT] * 2), [trace(tmp_path / "ddp", [GRADIENT] * 2)])
    assert series.names == ("conv.weight", "conv.bias")
    assert series.steps.tolist() == [0, 1]
    assert not series.gradients.any()
    assert not series.parameters.any()


def test_a_step_behind_the_first_difference_is_there_too(tmp_path: Path) -> None:
    off = GRADIENT * np.array([1.0, 1.5, 1.0, 1.0, 1.0])
    ranks = [trace(tmp_path / "ddp", [GRADIENT, off, GRADIENT, off * 2])]
    series = series_of(trace(tmp_path / "dp", [GRADIENT] * 4), ranks)
    assert series.gradients[:, 0].tolist() == pytest.approx([0, 0.5, 0, 2.0])  # of 2.0, the largest gradient
    assert series.gradients[3].tolist() == pytest.approx([2.0, 0.125])


def test_the_worst_rank_counts_and_a_sketch_is_enough(tmp_path: Path) -> None:
    ranks = [trace(tmp_path / "ddp", [GRADIENT]), trace(tmp_path / "ddp", [GRADIENT * 2], rank=1)]
    series = series_of(trace(tmp_path / "dp", [GRADIENT]), ranks)
    assert series.gradients[0, 0] > 0.5
    assert series.losses.shape == (1, 3)


def test_none_on_one_side_and_nan_on_one_side_are_infinitely_far(tmp_path: Path) -> None:
    lost = GRADIENT * np.array([np.nan, 1, 1, 1, 1])
    reference = trace(tmp_path / "dp", [GRADIENT])
    missing = trace(tmp_path / "a", [GRADIENT], missing=[1])
    assert series_of(reference, [missing]).gradients[0].tolist() == [0.0, np.inf]
    assert series_of(reference, [trace(tmp_path / "b", [lost])]).gradients[0].tolist() == [np.inf, 0.0]


def test_what_cannot_be_compared_is_nan(tmp_path: Path) -> None:
    other = Layout(("a",), ((5,),), ("float64",))
    ranks = [trace(tmp_path / "ddp", [GRADIENT] * 2, begun=other)]
    series = series_of(trace(tmp_path / "dp", [GRADIENT] * 2), ranks)
    assert np.isnan(series.gradients[0]).all()
    assert not np.isnan(series.gradients[1]).any()


def test_a_parameter_behind_a_gradient_of_rounding_is_not_held_against_the_run(tmp_path: Path) -> None:
    rounding = np.array([0, 0, 0, 1e-13, 0])
    moved = -GRADIENT + np.array([0, 0, 0, 0.01, 0])
    reference = trace(tmp_path / "dp", [GRADIENT * np.array([1, 1, 1, 0, 1])], parameters=[-GRADIENT])
    off = trace(tmp_path / "a", [GRADIENT * np.array([1, 1, 1, 0, 1]) + rounding], parameters=[moved])
    exact = trace(tmp_path / "b", [GRADIENT * np.array([1, 1, 1, 0, 1])], parameters=[moved])
    assert not series_of(reference, [off]).parameters.any()
    assert series_of(reference, [exact]).parameters[0, 1] == pytest.approx(0.04)


def test_rates_losses_and_rows_stand_beside_each_other(tmp_path: Path) -> None:
    reference = trace(tmp_path / "dp", [GRADIENT] * 2, rates=[0.1, 0.2], losses=[1.0, 2.0])
    ranks = [trace(tmp_path / "ddp", [GRADIENT] * 2, rates=[0.1, 0.3], losses=[1.0, 4.0])]
    series = series_of(reference, ranks)
    assert series.learning_rates.tolist() == [[[0.1], [0.1]], [[0.2], [0.3]]]
    assert series.losses.tolist() == [[1.0, 1.0], [2.0, 4.0]]
    assert series.rows.tolist() == [[5], [5]]
