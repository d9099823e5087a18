"""What no optimizer step shows: parameters that none steps, and what is changed behind the last one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dp2ddp.trace.records import End, Final, Sort, Trace, read_trace
from dp2ddp.trace.writer import Writer
from dp2ddp.verify.causes.diagnose import diagnose
from dp2ddp.verify.causes.evidence import Evidence
from dp2ddp.verify.compare import Comparison, compare
from dp2ddp.verify.ending import tensors_apart
from dp2ddp.verify.outputs import FilesComparison, TextComparison
from dp2ddp.verify.tolerance import FLOAT64
from tests.verify.traces import named

ONES = np.ones(3)


def final(*tensors: tuple[str, np.ndarray, Sort]) -> Final:
    vectors = [named({name: values}) for name, values, _ in tensors]
    together = vectors[0]
    for vector in vectors[1:]:
        together = together.followed_by(vector)
    return Final(together, np.array([sort for *_, sort in tensors], dtype=np.uint8))


def ended(folder: Path, left: Final, *, rank: int = 0, losses: Sequence[float] = (1.0,)) -> Trace:
    writer = Writer(folder / f"rank{rank}")
    writer.write_final(left)
    writer.write_end(End(steps=0, losses=tuple(losses)), {})
    return read_trace(folder, rank)


def compared(
    tmp_path: Path, *ranks: Final, losses: Sequence[float] = (1.0,), port: bool = True
) -> Comparison:
    reference = ended(tmp_path / "dp", final(("w", ONES, Sort.UNSTEPPED)))
    traces = [ended(tmp_path / "ddp", each, rank=rank, losses=losses) for rank, each in enumerate(ranks)]
    return compare(reference, traces, FLOAT64, port=port)


def test_a_script_without_an_optimizer_is_judged_by_what_its_models_hold(tmp_path: Path) -> None:
    same = final(("module.w", ONES, Sort.UNSTEPPED))
    assert compared(tmp_path, same, same).identical
    other = final(("w", ONES * 1.001, Sort.UNSTEPPED))
    found = compared(tmp_path, same, other)
    assert found.first is not None
    assert (found.first.kind, found.first.name, found.first.rank) == ("unstepped parameter", "w", 1)
    assert found.first.size == pytest.approx(0.001)


def test_losses_that_no_step_follows_are_judged_for_conversions(tmp_path: Path) -> None:
    same = final(("w", ONES, Sort.UNSTEPPED))
    assert compared(tmp_path, same, losses=(1.1,)).same  # a rank of a port has its own
    found = compared(tmp_path, same, losses=(1.1,), port=False)
    assert found.first is not None
    assert found.first.kind == "loss"
    assert not compared(tmp_path, same, losses=(1.0, 1.0), port=False).same


@pytest.mark.parametrize(
    ("ours", "theirs", "kind"),
    [
        (Sort.SETTLED, Sort.SETTLED, None),  # the last step was compared
        (Sort.CHANGED, Sort.SETTLED, "final parameter"),
        (Sort.SETTLED, Sort.CHANGED, "final parameter"),
        (Sort.UNSTEPPED, Sort.SETTLED, "unstepped parameter"),
        (Sort.BUFFER, Sort.BUFFER, "final buffer"),
    ],
)
def test_what_the_last_step_left_is_not_judged_again(ours: Sort, theirs: Sort, kind: str | None) -> None:
    found = list(tensors_apart(final(("w", ONES, ours)), final(("w", ONES * 2, theirs))))
    assert [each.kind for each in found] == ([kind] if kind else [])


def test_of_two_models_with_one_name_the_nearest_go_together() -> None:
    ours = final(("w", ONES, Sort.CHANGED), ("w", ONES * 5, Sort.UNSTEPPED))
    theirs = final(("w", ONES * 5.5, Sort.UNSTEPPED), ("w", ONES, Sort.CHANGED))
    assert sorted(each.size for each in tensors_apart(ours, theirs)) == [0.0, pytest.approx(0.1)]
    # as the average of weights that were loaded into the model, on one side only
    loaded = final(("w", ONES, Sort.CHANGED), ("w", ONES, Sort.UNSTEPPED))
    left = final(("w", ONES, Sort.UNSTEPPED), ("w", ONES * 2, Sort.SETTLED))
    assert [(each.kind, each.size) for each in tensors_apart(loaded, left)] == [
        ("unstepped parameter", 0.0),
        ("final parameter", 1.0),
    ]


def test_numbers_of_nothing_but_rounding_may_differ() -> None:
    ours, theirs = (final(("w", ONES * size, Sort.UNSTEPPED)) for size in (1e-17, 3e-17))
    assert [each.size for each in tensors_apart(ours, theirs, floor=1e-16)] == [0.0]


def test_what_has_no_partner_is_not_passed_over(tmp_path: Path) -> None:
    found = compared(tmp_path, final(("other", ONES, Sort.UNSTEPPED)))
    assert found.first is not None
    assert found.first.name == "w (rank 0 has none of that name)"
    (remark,) = found.remarks
    assert "1 parameters that no optimizer steps were not compared" in remark


@pytest.mark.parametrize(("ranks", "code"), [((1.1, 1.1), "moved-by-hand"), ((1.1, 1.2), "not-synchronised")])
def test_the_cause_is_named(tmp_path: Path, ranks: tuple[float, float], code: str) -> None:
    reference = ended(tmp_path / "dp", final(("w", ONES, Sort.UNSTEPPED)))
    traces = tuple(
        ended(tmp_path / "ddp", final(("w", ONES * size, Sort.UNSTEPPED)), rank=rank)
        for rank, size in enumerate(ranks)
    )
    found = compare(reference, traces, FLOAT64, port=True)
    nothing = TextComparison(0, None), (), FilesComparison(0, ())
    assert diagnose(Evidence(2, reference, traces, found, *nothing))[0].code == code
