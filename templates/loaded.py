"""Tensors of batches as they were loaded: how the whole can be had of what a rank has rows of.

What is small, labels above all, travels with the next forward pass, whose outputs are mostly seen beside it.
"""

import itertools
import math
import weakref
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .arguments import tensors_in
from .rows import from_all_ranks

# Bytes up to which a tensor travels with other news: no exchange more, and float32 to the last bit.
SMALL_WHOLE = 64 * 1024


class LoadedRows:
    """One tensor of a batch: this rank's rows of it, and all of them once they are known. Nobody changes either."""

    def __init__(self, own: torch.Tensor, sizes: Sequence[int], whole: "torch.Tensor | None" = None) -> None:
        self.own, self.sizes, self.whole = own, tuple(sizes), whole
        self.travels = whole is None and not is_large(own, sizes, 0)

    @property
    def form(self) -> int:
        """A number for what all ranks' rows must have alike."""
        return zlib.crc32(repr((self.own.dtype, self.own.shape[1:])).encode())

    def make_whole(self) -> torch.Tensor:
        """All rows; all ranks have to come here, if they are not known yet."""
        if self.whole is None:
            self.whole = from_all_ranks(self.own, self.sizes)
        return self.whole


@dataclass(frozen=True)
class LoadedOrigin:
    """Where rows come from: what was loaded, and what was done to it since, which can be done to the whole, too."""

    loaded: LoadedRows
    done: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = ()

    def then(self, step: Callable[[torch.Tensor], torch.Tensor]) -> "LoadedOrigin":
        """The origin of what one more step makes."""
        return LoadedOrigin(self.loaded, (*self.done, step))

    def make_whole(self) -> torch.Tensor:
        """The whole of these rows."""
        return self.behind(LoadedOrigin(self.loaded), self.loaded.make_whole())

    def behind(self, earlier: "LoadedOrigin", whole: torch.Tensor) -> torch.Tensor:
        """The same from an earlier whole on."""
        for step in self.done[len(earlier.done) :]:
            whole = step(whole)
        return whole

    @property
    def has_come(self) -> bool:
        """Whether the whole is here, and so small that its rows need not be looked at alone."""
        return self.loaded.travels and self.loaded.whole is not None


def is_large(own: torch.Tensor, sizes: Sequence[int], dim: int) -> bool:
    """Whether the whole is larger than what travels along: every rank has the same answer."""
    return bytes_of_whole(own, sizes, dim) > SMALL_WHOLE


def bytes_of_whole(own: torch.Tensor, sizes: Sequence[int], dim: int) -> int:
    """The size of the whole of which these are a rank's rows, which may be none."""
    return own.element_size() * math.prod(own.shape[:dim]) * math.prod(own.shape[dim + 1 :]) * sum(sizes)


# The tensors of the last batches that no forward pass has seen yet; all ranks number them alike.
WAITING: "weakref.WeakValueDictionary[int, LoadedRows]" = weakref.WeakValueDictionary()
NUMBERS = itertools.count()

# How many tensors wait at most: of a script that never runs its model on them, the last ones.
MOST_WAITING = 64


def await_forward(loaded: LoadedRows) -> None:
    """Let the next forward pass tell all ranks of it."""
    number = next(NUMBERS)
    WAITING[number] = loaded
    for old in [waiting for waiting in WAITING if waiting <= number - MOST_WAITING]:
        WAITING.pop(old, None)


def waiting_beside(arguments: Any, with_rows: bool) -> list[torch.Tensor]:
    """What a message says of the tensors that wait: a table of (number, form, does it travel), and rows that travel.

    Not those of the forward pass's own arguments: the script has done with them, mostly. Of them it is only asked
    whether they have the same form on all ranks, as the samples of one batch must.
    """
    origins = [getattr(tensor, "origin", None) for tensor in tensors_in(arguments)]
    given = {id(origin.loaded) for origin in origins if origin is not None}
    table, rows, left = [], [], SMALL_WHOLE
    for number, loaded in sorted(WAITING.items()):
        size = bytes_of_whole(loaded.own, loaded.sizes, 0)
        goes = with_rows and loaded.travels and size <= left and id(loaded) not in given
        table.append((number, loaded.form, goes))
        rows += [loaded.own] if goes else []
        left -= size if goes else 0
    return [torch.tensor(table, dtype=torch.int64), *rows] if table else []


def take_in(messages: "Sequence[Sequence[torch.Tensor]]") -> None:
    """Read what all ranks' messages say of the tensors that wait."""
    arrived: list[dict[int, tuple[int, torch.Tensor | None]]] = []
    for table, *tensors in (message for message in messages if message):
        parts = iter(tensors)
        arrived.append(
            {number: (form, next(parts) if goes else None) for number, form, goes in table.tolist()}
        )
    if len(arrived) < len(messages):
        return
    for number in [common for common in arrived[0] if all(common in each for each in arrived)]:
        loaded = WAITING.pop(number, None)
        if len({each[number][0] for each in arrived}) > 1:
            raise ValueError(
                "The ranks' samples of one batch have different shapes or types, and cannot be stacked to a batch."
            )
        own = [rows for each in arrived for rows in [each[number][1]] if rows is not None]
        if loaded is not None and loaded.whole is None and len(own) == len(arrived):
            loaded.whole = torch.cat(own)
