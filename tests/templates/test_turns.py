"""Rank 0 first, then the others."""

from __future__ import annotations

from typing import Any

import pytest
from dp2ddp.templates import turns


def on_rank(monkeypatch: pytest.MonkeyPatch, rank: int, from_rank_zero: Any = None) -> list[str]:
    """Play one rank of two; what happens is told in order."""
    told: list[str] = []

    def exchange(value: Any) -> list[Any]:
        told.append("meet")
        return [value if rank == 0 else from_rank_zero, None]

    monkeypatch.setattr(turns, "world_size", lambda: 2)
    monkeypatch.setattr(turns, "own_rank", lambda: rank)
    monkeypatch.setattr(turns, "exchange", exchange)
    return told


def test_alone_it_is_a_plain_call() -> None:
    assert turns.rank_zero_first(divmod, 7, 2) == (3, 1)


@pytest.mark.parametrize(("rank", "order"), [(0, ["call", "meet"]), (1, ["meet", "call"])])
def test_rank_0_calls_before_the_others(monkeypatch: pytest.MonkeyPatch, rank: int, order: list[str]) -> None:
    told = on_rank(monkeypatch, rank)

    assert turns.rank_zero_first(lambda: told.append("call") or rank) == rank
    assert told == order


@pytest.mark.parametrize("rank", [0, 1])
def test_an_exception_on_rank_0_is_raised_on_all(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    on_rank(monkeypatch, rank, from_rank_zero=OSError("no network"))

    def download() -> None:
        raise OSError("no network")

    with pytest.raises(OSError, match="no network"):
        turns.rank_zero_first(download)
