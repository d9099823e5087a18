"""Half precision on one side only is a difference, though doubles hide it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.comparison.compare import compare
from dp2ddp.comparison.script_facts import casts_on_one_side
from dp2ddp.comparison.tolerance import FLOAT64
from dp2ddp.trace.records import SCALED, End, Trace, read_trace
from dp2ddp.trace.writer import Writer
from tests.comparison.traces import GRADIENT, Taken, record

Casts = tuple[str, ...]


def made(folder: Path, *steps: Casts, rank: int = 0, precision: Casts = ()) -> Trace:
    events = [
        {"casts": tuple((what, "port.py:3") for what in each), "precision": precision} for each in steps
    ]
    return record(folder, [Taken(GRADIENT, events=each) for each in events], rank=rank)


def apart(
    tmp_path: Path, expected: list[Casts], actual: list[Casts], precision: Casts = ()
) -> list[tuple[int, str]]:
    reference = made(tmp_path / "dp", *expected, precision=precision)
    rank = made(tmp_path / "ddp", *actual, precision=precision)
    return [
        (each.step, each.difference.name)
        for each in casts_on_one_side(reference, [rank], [range(len(actual))])
    ]


def test_a_cast_on_one_side_is_found_where_it_is_first_made(tmp_path: Path) -> None:
    one = "gradients cast to float16"
    assert apart(tmp_path, [(), (), ()], [(), (one,), (one,)]) == [(1, f"{one} under DDP only, at port.py:3")]


def test_both_may_cast_at_other_steps(tmp_path: Path) -> None:
    assert apart(tmp_path, [(), ("tensors cast to float16",)], [("tensors cast to float16",), ()]) == []


@pytest.mark.parametrize(("precision", "count"), [((), 0), (("bfloat16",), 0), (("float16",), 1)])
def test_a_scaler_that_is_gone_counts_where_float16_is_at_work(
    tmp_path: Path, precision: Casts, count: int
) -> None:
    assert len(apart(tmp_path, [(SCALED,)], [()], precision)) == count


@pytest.mark.parametrize(("dtype", "count"), [("bfloat16", 0), ("float16", 1)])
def test_a_scaler_counts_beside_casts_to_float16_and_not_to_bfloat16(
    tmp_path: Path, dtype: str, count: int
) -> None:
    cast = f"tensors cast to {dtype}"
    assert len(apart(tmp_path, [(cast, SCALED)], [(cast,)])) == count


def test_a_rank_may_leave_an_evaluation_to_rank_0(tmp_path: Path) -> None:
    half: Casts = ("parameters cast to float16",)
    reference = made(tmp_path / "dp", half)
    ranks = [made(tmp_path / "ddp", each, rank=rank) for rank, each in enumerate((half, Casts()))]
    assert list(casts_on_one_side(reference, ranks, [range(1)] * 2)) == []


def test_a_cast_behind_the_last_step_is_judged_for_ports(tmp_path: Path) -> None:
    reference = made(tmp_path / "dp", ())
    made(tmp_path / "ddp", ())
    writer = tmp_path / "ddp" / "rank0" / "end.json"
    end = End(steps=1, casts=(("parameters cast to float16", "port.py:9"),))
    Writer(tmp_path / "other" / "rank0").write_end(end, {})
    writer.write_bytes((tmp_path / "other" / "rank0" / "end.json").read_bytes())
    rank = read_trace(tmp_path / "ddp", 0)
    assert compare(reference, [rank], FLOAT64).same
    found = compare(reference, [rank], FLOAT64, port=True).first
    assert (found.kind, found.step) == ("precision", 1)
