"""Rank 0 first, then the others."""

from __future__ import annotations

from typing import Any

import pytest
from dp2ddp.templates import plain, rank_zero_first


def on_rank(monkeypatch: pytest.MonkeyPatch, rank: int, from_rank_zero: Any = None) -> list[str]:
    """Play one rank of two; what happens is noted in order."""
    calls: list[str] = []

    def exchange(value: Any) -> list[Any]:
        calls.append("meet")
        return [value if rank == 0 else from_rank_zero, None]

    monkeypatch.setattr(rank_zero_first, "world_size", lambda: 2)
    monkeypatch.setattr(rank_zero_first, "own_rank", lambda: rank)
    monkeypatch.setattr(rank_zero_first, "exchange", exchange)
    return calls


def test_alone_it_is_a_plain_call() -> None:
    assert rank_zero_first.rank_zero_first(divmod, 7, 2) == (3, 1)


@pytest.mark.parametrize(("rank", "order"), [(0, ["call", "meet"]), (1, ["meet", "call"])])
def test_rank_0_calls_before_the_others(monkeypatch: pytest.MonkeyPatch, rank: int, order: list[str]) -> None:
    calls = on_rank(monkeypatch, rank)

    assert rank_zero_first.rank_zero_first(lambda: calls.append("call") or rank) == rank
    assert calls == order


@pytest.mark.parametrize("rank", [0, 1])
def test_an_exception_on_rank_0_is_raised_on_all(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    on_rank(monkeypatch, rank, from_rank_zero=OSError("no network"))

    def download() -> None:
        raise OSError("no network")

    with pytest.raises(OSError, match="no network"):
        rank_zero_first.rank_zero_first(download)


@pytest.mark.parametrize(("rank", "order"), [(0, ["call", "meet"]), (1, ["meet", "call"])])
def test_plain_rank_0_downloads_before_the_others(
    monkeypatch: pytest.MonkeyPatch, rank: int, order: list[str]
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(plain.dist, "get_rank", lambda: rank)
    monkeypatch.setattr(plain.dist, "barrier", lambda: calls.append("meet"))

    assert (
        plain.rank0_first(lambda root, download: calls.append("call") or root, "data", download=True)
        == "data"
    )
    assert calls == order
