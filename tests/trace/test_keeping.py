"""A record is bounded, whatever the number of steps, and its whole steps lie where faults show."""

from __future__ import annotations

from dp2ddp.trace.writer import HEAD, Keeper


def test_the_first_steps_are_kept_and_then_ever_fewer() -> None:
    keeper = Keeper(10**9)
    kept = [step for step in range(5000) if keeper.keeps(step, 1000)]
    assert kept[:HEAD] == list(range(HEAD))
    late = [step for step in kept if step >= HEAD]
    assert 30 < len(late) < 60
    assert [b - a for a, b in zip(late, late[1:], strict=False)] == sorted(
        b - a for a, b in zip(late, late[1:], strict=False)
    )


def test_no_more_than_the_budget_is_kept() -> None:
    keeper = Keeper(10_000)
    assert sum(keeper.keeps(step, 1000) for step in range(100_000)) == 9  # 7 at the start, 2 behind
