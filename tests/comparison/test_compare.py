"""Two runs are the same, or they part at a step, in a tensor, by a ratio; on made-up traces, without torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dp2ddp.comparison.compare import Comparison, compare
from dp2ddp.comparison.tolerance import FLOAT32, FLOAT64
from dp2ddp.trace.records import Layout, Trace
from tests.comparison.traces import GRADIENT, LAYOUT, Taken, record, trace


def compared(tmp_path: Path, other: list[np.ndarray], **options: object) -> Comparison:
    """Three steps of the reference against one rank."""
    reference = trace(tmp_path / "dp", [GRADIENT] * 3)
    return compare(reference, [trace(tmp_path / "ddp", other, **options)], FLOAT64)  # type: ignore[arg-type]


def test_the_same_numbers_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    found = compared(tmp_path, [GRADIENT] * 3)
    assert found.same
    assert found.identical
    assert found.identical_steps == 3


def test_rounding_is_the_same_but_not_identical(tmp_path: Path) -> None:
    found = compared(tmp_path, [GRADIENT, GRADIENT * (1 + 1e-14), GRADIENT])
    assert found.same
    assert not found.identical
    assert found.identical_steps == 2


@pytest.mark.parametrize("factor", [0.5, 2.0, 1 + 1e-9])
def test_a_wrong_gradient_is_found_at_its_step_with_its_ratio(tmp_path: Path, factor: float) -> None:
    found = compared(tmp_path, [GRADIENT, GRADIENT, GRADIENT * factor])
    assert (found.first.kind, found.first.step, found.first.name) == ("gradient", 2, "conv.weight")
    assert found.first.ratio == pytest.approx(factor)


def test_gradients_are_named_before_the_parameters_they_spoil(tmp_path: Path) -> None:
    found = compared(tmp_path, [GRADIENT * 2, GRADIENT, GRADIENT])
    assert found.first.kind == "gradient"
    assert [each.kind for each in found.also] == ["parameter"]


def test_a_wrong_learning_rate_is_the_cause_of_wrong_parameters(tmp_path: Path) -> None:
    parameters = [-GRADIENT, -GRADIENT * 2, -GRADIENT]
    found = compared(tmp_path, [GRADIENT] * 3, rates=[0.1, 0.2, 0.1], parameters=parameters)
    assert (found.first.kind, found.first.step) == ("learning rate", 1)


def test_another_loss_is_a_difference_though_training_is_the_same(tmp_path: Path) -> None:
    found = compared(tmp_path, [GRADIENT] * 3, losses=[1.0, 1.001, 1.0])
    assert (found.first.kind, found.first.step) == ("loss", 1)


def test_a_missing_step_is_a_difference(tmp_path: Path) -> None:
    found = compared(tmp_path, [GRADIENT] * 2)
    assert (found.first.kind, found.first.step) == ("steps", 2)


def test_a_gradient_of_none_is_not_one_of_zeros(tmp_path: Path) -> None:
    found = compared(tmp_path, [GRADIENT] * 3, missing=[1])
    assert found.first.size == np.inf
    assert "conv.bias" in found.first.name


def test_two_runs_that_both_go_to_nan_are_the_same(tmp_path: Path) -> None:
    lost = np.array([1.0, np.nan, np.inf, 0.25, 0.125])
    one = trace(tmp_path / "dp", [GRADIENT, lost, lost])
    two = trace(tmp_path / "ddp", [GRADIENT, lost * (1 + 1e-14), lost])
    assert compare(one, [two], FLOAT64).same


@pytest.mark.parametrize(
    ("losses", "lost"),
    [
        ([1.0, np.nan, np.inf], 1),
        ([np.nan, np.nan, np.nan], 0),
        ([np.inf, 1.0, 2.0], None),  # a step that a GradScaler skips
        ([1.0, np.nan, 1.0], None),
    ],
)
def test_it_is_told_from_which_step_on_no_difference_can_be_seen(
    tmp_path: Path, losses: list[float], lost: int | None
) -> None:
    reference = trace(tmp_path / "dp", [GRADIENT] * 3, losses=losses)
    found = compare(reference, [trace(tmp_path / "ddp", [GRADIENT] * 3, losses=losses)], FLOAT64)
    assert found.same
    assert found.lost_from == lost
    said = [f"from step {lost} on" in remark for remark in found.remarks]
    assert said == ([] if lost is None else [True])


def test_nan_is_not_the_same_as_a_number(tmp_path: Path) -> None:
    found = compared(tmp_path, [GRADIENT, np.full(5, np.nan), GRADIENT])
    assert found.first.step == 1


def test_buffers_are_compared_at_the_end(tmp_path: Path) -> None:
    reference = trace(tmp_path / "dp", [GRADIENT], buffers={"running_mean": np.ones(2)})
    other = trace(tmp_path / "ddp", [GRADIENT], buffers={"running_mean": np.array([1.0, 1.1])})
    found = compare(reference, [other], FLOAT64)
    assert (found.first.kind, found.first.name) == ("buffer", "running_mean")


def test_a_parameter_with_a_gradient_of_pure_rounding_may_go_its_own_way(tmp_path: Path) -> None:
    noise, other_noise = GRADIENT.copy(), GRADIENT.copy()
    noise[4], other_noise[4] = 3e-16, -5e-16  # Adam makes a full step of either
    expected, actual = -GRADIENT, -GRADIENT.copy()
    actual[4] *= 1 + 1e-7
    reference = trace(tmp_path / "dp", [noise], parameters=[expected])
    found = compare(reference, [trace(tmp_path / "ddp", [other_noise], parameters=[actual])], FLOAT64)
    assert found.same
    assert found.so_far.noisy == 1
    assert found.so_far.noise == pytest.approx(5e-8)  # 0.125e-7, and the largest bias is 0.25
    assert found.so_far.noise_floor == pytest.approx(1.25e-8)


def test_rounding_is_known_in_an_optimizer_that_has_grown(tmp_path: Path) -> None:
    """add_param_group: the new group's bias in front of BatchNorm is as noisy as any."""
    noise, other_noise = GRADIENT.copy(), GRADIENT.copy()
    noise[4], other_noise[4] = 3e-16, -5e-16
    expected, actual = -GRADIENT, -GRADIENT.copy()
    actual[4] *= 1 + 1e-7
    begun = Layout(LAYOUT.names[:1], LAYOUT.shapes[:1], LAYOUT.dtypes[:1])
    reference = trace(
        tmp_path / "dp", [GRADIENT[:3], noise], parameters=[expected[:3], expected], begun=begun
    )
    other = trace(
        tmp_path / "ddp",
        [GRADIENT[:3] * (1 + 1e-15), other_noise],
        parameters=[expected[:3], actual],
        begun=begun,
    )
    found = compare(reference, [other], FLOAT64)
    assert found.same
    assert found.so_far.noisy == 1


def test_the_same_parameter_with_a_real_gradient_may_not(tmp_path: Path) -> None:
    actual = -GRADIENT.copy()
    actual[4] *= 1 + 1e-7
    found = compared(tmp_path, [GRADIENT] * 3, parameters=[actual] * 3)
    assert found.first.kind == "parameter"


def test_a_rank_that_parts_from_the_others_is_named(tmp_path: Path) -> None:
    reference = trace(tmp_path / "dp", [GRADIENT] * 2)
    gradients = [[GRADIENT] * 2, [GRADIENT, GRADIENT * 3], [GRADIENT] * 2]
    ranks = [trace(tmp_path / "ddp", each, rank=rank) for rank, each in enumerate(gradients)]
    found = compare(reference, ranks, FLOAT64)
    assert (found.first.rank, found.first.step) == (1, 1)
    assert found.first.ratio == pytest.approx(3)
    assert found.ranks_that_agree == ((0, 2), (1,))


def test_ranks_with_one_gradient_and_other_parameters_do_not_agree(tmp_path: Path) -> None:
    reference = trace(tmp_path / "dp", [GRADIENT] * 2)
    moved = ([-GRADIENT] * 2, [-GRADIENT, -GRADIENT * 2])
    ranks = [
        trace(tmp_path / "ddp", [GRADIENT, GRADIENT * 3], parameters=each, rank=rank)
        for rank, each in enumerate(moved)
    ]
    found = compare(reference, ranks, FLOAT64)
    assert (found.first.kind, found.ranks_that_agree) == ("gradient", ((0,), (1,)))


def test_float32_has_an_ulp_of_its_own(tmp_path: Path) -> None:
    reference = trace(tmp_path / "dp", [GRADIENT] * 3)
    rounded = trace(tmp_path / "a", [GRADIENT, GRADIENT * (1 + 3e-6), GRADIENT])
    found = compare(reference, [rounded], FLOAT32)
    assert found.same
    assert found.identical_steps == 2
    assert found.worst.ulps == pytest.approx(3e-6 * 2**23)
    other = trace(tmp_path / "b", [GRADIENT, GRADIENT * 1.001, GRADIENT])
    assert not compare(reference, [other], FLOAT32).same


def test_two_programs_without_a_step_are_the_same(tmp_path: Path) -> None:
    found = compare(trace(tmp_path / "dp", []), [trace(tmp_path / "ddp", [])], FLOAT64)
    assert found.same
    assert found.steps == 0


# ---- before clipping


def clipped(folder: Path, rank: int, gradient: np.ndarray, limit: float) -> Trace:
    """Two steps; what the optimizer is given in the second is the same whatever it was before clipping."""
    begun = Taken(GRADIENT, unclipped=GRADIENT, events={"limits": (limit,)})
    return record(
        folder, [begun, Taken(GRADIENT, unclipped=gradient, events={"limits": (limit,)})], rank=rank
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_gradient_that_only_clipping_makes_the_same_is_a_difference(tmp_path: Path, rank: int) -> None:
    """Rank 0 is compared by its values, rank 1 by its sketch."""
    reference = clipped(tmp_path / "dp", 0, GRADIENT * 3, 1.0)
    gradients = [GRADIENT * (6 if each == rank else 3) for each in range(2)]
    ranks = [clipped(tmp_path / "ddp", each, gradient, 1.0) for each, gradient in enumerate(gradients)]
    found = compare(reference, ranks, FLOAT64, port=True)
    assert (found.first.kind, found.first.step, found.first.rank) == ("gradient before clipping", 1, rank)
    assert found.first.ratio == pytest.approx(2.0)
    assert not found.also


def test_a_sum_that_is_clipped_at_w_times_the_norm_is_no_difference(tmp_path: Path) -> None:
    reference = clipped(tmp_path / "dp", 0, GRADIENT * 3, 1.0)
    begun = Taken(GRADIENT, unclipped=GRADIENT * 2, events={"limits": (2.0,)})
    summed = Taken(GRADIENT, unclipped=GRADIENT * 6, events={"limits": (2.0,)})
    ranks = [record(tmp_path / "ddp", [begun, summed], rank=rank) for rank in range(2)]
    assert compare(reference, ranks, FLOAT64, port=True).same


def test_a_gradient_that_is_clipped_on_one_side_by_hand_is_compared_behind_it(tmp_path: Path) -> None:
    reference = clipped(tmp_path / "dp", 0, GRADIENT * 3, 1.0)
    assert compare(reference, [record(tmp_path / "ddp", [Taken(GRADIENT)] * 2)], FLOAT64, port=True).same


def test_noise_that_clipping_takes_away_is_measured_before_it(tmp_path: Path) -> None:
    """clip_grad_value_ makes large gradients equal, however far rounding has driven them apart."""
    reference, nudged, other = (
        clipped(tmp_path / name, 0, GRADIENT * (3 + offset), 1.0)
        for name, offset in (("dp", 0.0), ("nudged", 1e-9), ("ddp", 1e-8))
    )
    assert not compare(reference, [other], FLOAT64, port=True).same
    assert compare(reference, [other], FLOAT64, nudged, port=True).same


@pytest.mark.parametrize(
    ("events", "told"),
    [({"limits": (1.0,)}, ()), ({"limits": (5.0,)}, ("5", "1")), ({}, ("nothing", "1"))],
    ids=["the same", "another limit", "no clipping"],
)
def test_a_limit_that_no_gradient_reached_is_remarked(
    tmp_path: Path, events: dict[str, tuple[float, ...]], told: tuple[str, ...]
) -> None:
    reference = clipped(tmp_path / "dp", 0, GRADIENT, 1.0)
    unclipped = GRADIENT if events else None
    rank = record(tmp_path / "ddp", [Taken(GRADIENT, unclipped=unclipped, events=events)] * 2)
    found = compare(reference, [rank], FLOAT64, port=True)
    assert found.same
    remarks = [remark for remark in found.remarks if "clip_grad" in remark]
    expected = "torch's clip_grad_* is given {} as its limit, under DataParallel {}; "
    assert [remark.startswith(expected.format(*told)) for remark in remarks] == [True] * bool(told)
