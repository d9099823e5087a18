"""How many runs a measurement makes is known before the first one, and how long the rest takes after a few."""

from __future__ import annotations

import pytest

from dp2ddp.trial.bench_plan import BenchPlan, Kind


def test_all_runs_are_announced() -> None:
    assert BenchPlan.of((2,), rounds=2, compared=4).announcement == (
        "9 runs, one after the other: 1 comparison of 4 steps, 2 that count, 6 that are timed"
    )
    assert BenchPlan.of((1, 4), rounds=1, compared=0).announcement == (
        "8 runs, one after the other: 4 that count, 4 that are timed"
    )


def test_the_rest_is_known_when_a_run_of_each_kind_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    plan = BenchPlan.of((2, 4), rounds=1, compared=4)

    def run(kind: Kind, world: int, seconds: float) -> None:
        with plan.run(kind, world):
            now[0] += seconds

    run(Kind.COMPARED, 2, 20)
    run(Kind.COUNTED_DP, 2, 3)
    run(Kind.COUNTED_DDP, 2, 4)
    assert plan.rest == ""
    run(Kind.TIMED_DP, 1, 5)  # as long as ranks take, as far as is known
    assert plan.rest == "about 1:11 for the 7 runs that are left"  # 5 + 5, then 40 + 3 + 8 + 5 + 5
    run(Kind.TIMED_DP, 2, 5)
    run(Kind.TIMED_DDP, 2, 10)
    assert plan.rest == "about 1:16 for the 5 runs that are left"  # 40 + 3 + 8 + 5 + 20
    for kind in (Kind.COMPARED, Kind.COUNTED_DP, Kind.COUNTED_DDP, Kind.TIMED_DP):
        run(kind, 4, 1)
    assert plan.rest.endswith("for the run that is left")
    run(Kind.TIMED_DDP, 4, 1)
    assert plan.rest == ""


def test_runs_that_fail_are_not_waited_for() -> None:
    plan = BenchPlan.of((2,), rounds=2, compared=0)
    plan.leave_out(Kind.TIMED_DP, 1)
    assert plan.announcement.startswith("6 runs")
