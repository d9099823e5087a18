"""What no optimizer step shows: parameters that none steps, and what is changed behind the last one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dp2ddp.comparison.causes.diagnose import diagnose
from dp2ddp.comparison.causes.evidence import Evidence
from dp2ddp.comparison.compare import Comparison, compare
from dp2ddp.comparison.differences import tensor_differences
from dp2ddp.comparison.tolerance import FLOAT64
from dp2ddp.trace.records import End, Final, FinalKind, Trace, read_trace
from dp2ddp.trace.writer import Writer
from tests.comparison.traces import GRADIENT, Taken, named, record

ONES = np.ones(3)


def final(*tensors: tuple[str, np.ndarray, FinalKind]) -> Final:
    vectors = [named({name: values}) for name, values, _ in tensors]
    together = vectors[0]
    for vector in vectors[1:]:
        together = together.followed_by(vector)
    return Final(together, np.array([kind for *_, kind in tensors], dtype=np.uint8))


def ended(folder: Path, left: Final, *, rank: int = 0, losses: Sequence[float] = (1.0,)) -> Trace:
    writer = Writer(folder / f"rank{rank}")
    writer.write_final(left)
    writer.write_end(End(steps=0, losses=tuple(losses)), {})
    return read_trace(folder, rank)


def compared(
    tmp_path: Path, *ranks: Final, losses: Sequence[float] = (1.0,), port: bool = True
) -> Comparison:
    reference = ended(tmp_path / "dp", final(("w", ONES, FinalKind.UNSTEPPED)))
    traces = [ended(tmp_path / "ddp", each, rank=rank, losses=losses) for rank, each in enumerate(ranks)]
    return compare(reference, traces, FLOAT64, port=port)


def test_a_script_without_an_optimizer_is_judged_by_what_its_models_hold(tmp_path: Path) -> None:
    same = final(("module.w", ONES, FinalKind.UNSTEPPED))
    assert compared(tmp_path, same, same).identical
    other = final(("w", ONES * 1.001, FinalKind.UNSTEPPED))
    found = compared(tmp_path, same, other)
    assert (found.first.kind, found.first.name, found.first.rank) == ("unstepped parameter", "w", 1)
    assert found.first.size == pytest.approx(0.001)


def test_losses_that_no_step_follows_are_judged_for_conversions(tmp_path: Path) -> None:
    same = final(("w", ONES, FinalKind.UNSTEPPED))
    assert compared(tmp_path, same, losses=(1.1,)).same  # a rank of a port has its own
    found = compared(tmp_path, same, losses=(1.1,), port=False)
    assert found.first.kind == "loss"
    assert not compared(tmp_path, same, losses=(1.0, 1.0), port=False).same


@pytest.mark.parametrize(
    ("expected", "actual", "kind"),
    [
        (FinalKind.SETTLED, FinalKind.SETTLED, None),  # the last step was compared
        (FinalKind.CHANGED, FinalKind.SETTLED, "final parameter"),
        (FinalKind.SETTLED, FinalKind.CHANGED, "final parameter"),
        (FinalKind.UNSTEPPED, FinalKind.SETTLED, "unstepped parameter"),
        (FinalKind.BUFFER, FinalKind.BUFFER, "final buffer"),
    ],
)
def test_what_the_last_step_left_is_not_judged_again(
    expected: FinalKind, actual: FinalKind, kind: str | None
) -> None:
    found = list(tensor_differences(final(("w", ONES, expected)), final(("w", ONES * 2, actual))))
    assert [each.kind for each in found] == ([kind] if kind else [])


def test_of_two_models_with_one_name_the_nearest_go_together() -> None:
    expected = final(("w", ONES, FinalKind.CHANGED), ("w", ONES * 5, FinalKind.UNSTEPPED))
    actual = final(("w", ONES * 5.5, FinalKind.UNSTEPPED), ("w", ONES, FinalKind.CHANGED))
    assert sorted(each.size for each in tensor_differences(expected, actual)) == [0.0, pytest.approx(0.1)]
    # as the average of weights that were loaded into the model, on one side only
    loaded = final(("w", ONES, FinalKind.CHANGED), ("w", ONES, FinalKind.UNSTEPPED))
    left = final(("w", ONES, FinalKind.UNSTEPPED), ("w", ONES * 2, FinalKind.SETTLED))
    assert [(each.kind, each.size) for each in tensor_differences(loaded, left)] == [
        ("unstepped parameter", 0.0),
        ("final parameter", 1.0),
    ]


def test_numbers_of_nothing_but_rounding_may_differ() -> None:
    expected, actual = (final(("w", ONES * size, FinalKind.UNSTEPPED)) for size in (1e-17, 3e-17))
    assert [each.size for each in tensor_differences(expected, actual, floor=1e-16)] == [0.0]


def test_what_has_no_partner_is_not_passed_over(tmp_path: Path) -> None:
    found = compared(tmp_path, final(("other", ONES, FinalKind.UNSTEPPED)))
    assert found.first.name == "w (rank 0 has none of that name)"
    (remark,) = found.remarks
    assert "1 parameters that no optimizer steps were not compared" in remark


@pytest.mark.parametrize(("ranks", "code"), [((1.1, 1.1), "moved-by-hand"), ((1.1, 1.2), "not-synchronised")])
def test_the_cause_is_named(tmp_path: Path, ranks: tuple[float, float], code: str) -> None:
    reference = ended(tmp_path / "dp", final(("w", ONES, FinalKind.UNSTEPPED)))
    traces = tuple(
        ended(tmp_path / "ddp", final(("w", ONES * size, FinalKind.UNSTEPPED)), rank=rank)
        for rank, size in enumerate(ranks)
    )
    found = compare(reference, traces, FLOAT64, port=True)
    assert diagnose(Evidence(2, reference, traces, found))[0].code == code


def trained(folder: Path, left: Final, *, rank: int = 0) -> Trace:
    """A run of one optimizer step."""
    return record(folder, [Taken(GRADIENT)], rank=rank, final=left)


def compared_after_training(tmp_path: Path, own: Final, port: bool) -> tuple[Evidence, Comparison]:
    """DataParallel and rank 0 end with an average of ones, rank 1 with `own`."""
    ones = final(("average.w", ONES, FinalKind.UNSTEPPED))
    reference = trained(tmp_path / "dp", ones)
    ranks = tuple(trained(tmp_path / "ddp", left, rank=rank) for rank, left in enumerate((ones, own)))
    found = compare(reference, ranks, FLOAT64, port=port)
    return Evidence(2, reference, ranks, found), found


def test_an_average_of_another_rank_counts_in_a_conversion(tmp_path: Path) -> None:
    own = final(("average.w", ONES * 1.5, FinalKind.UNSTEPPED))
    evidence, found = compared_after_training(tmp_path, own, port=False)
    assert (found.first.kind, found.first.name, found.first.rank) == ("unstepped parameter", "average.w", 1)
    assert not found.same
    assert not found.identical
    assert found.remarks == ()
    assert diagnose(evidence)[0].code == "ranks-part"


def test_an_average_of_another_rank_is_a_remark_on_a_port(tmp_path: Path) -> None:
    own = final(("average.w", ONES * 1.5, FinalKind.UNSTEPPED))
    _, found = compared_after_training(tmp_path, own, port=True)
    assert found.same
    (remark,) = found.remarks
    assert remark.startswith(
        "other values at the end on rank 1 than on rank 0 in average.w (which no optimizer steps): rank 0's were"
    )


@pytest.mark.parametrize("port", [False, True])
def test_running_averages_of_a_ranks_own_rows_are_no_difference(tmp_path: Path, port: bool) -> None:
    own = final(("average.w", ONES, FinalKind.UNSTEPPED), ("bn.running_mean", ONES * 3, FinalKind.BUFFER))
    left = final(("average.w", ONES, FinalKind.UNSTEPPED), ("bn.running_mean", ONES, FinalKind.BUFFER))
    reference = trained(tmp_path / "dp", left)
    ranks = [trained(tmp_path / "ddp", each, rank=rank) for rank, each in enumerate((left, own))]
    found = compare(reference, ranks, FLOAT64, port=port)
    assert found.same
    assert found.remarks == ()
