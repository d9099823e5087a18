"""Ranks that do the same thing one after the other."""

from collections.abc import Callable
from typing import Any

from .process import exchange, own_rank, world_size
from .rank_zero_output import as_exception, attempt, sendable


def rank_zero_first(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function on every rank, on rank 0 before the others: they find what it has downloaded.

    If it raises on rank 0, every rank raises the same.
    """
    if world_size() == 1:
        return function(*args, **kwargs)
    result, error = attempt(lambda: function(*args, **kwargs)) if own_rank() == 0 else (None, None)
    sent_error = exchange(sendable(error) if own_rank() == 0 else None)[0]
    if sent_error is not None:
        raise error or as_exception(sent_error)
    return result if own_rank() == 0 else function(*args, **kwargs)
