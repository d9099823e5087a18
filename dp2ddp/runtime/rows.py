"""How many rows each replica of a wrapped forward gets: the arithmetic that a report shows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

Saw = Callable[[tuple[int, ...]], None]


def observe_rows(saw: Saw) -> None:
    """Call `saw` for each forward: under DataParallel with the rows of each replica, on a rank with its own."""
    wrapper: Any = sys.modules[
        "torch.nn.parallel.data_parallel"
    ]  # in torch.nn.parallel that name is a function
    ddp: Any = DistributedDataParallel
    wrapper.scatter_kwargs = _seeing_chunks(wrapper.scatter_kwargs, saw)
    ddp.forward = _seeing_inputs(ddp.forward, saw)
    ddp.__init_subclass__ = classmethod(lambda cls: _watch_template(cls, saw))


def _seeing_chunks(original: Callable[..., Any], saw: Saw) -> Callable[..., Any]:
    def scatter_kwargs(inputs: Any, kwargs: Any, target_gpus: Any, dim: int = 0) -> Any:
        chunks, keywords = original(inputs, kwargs, target_gpus, dim)
        rows = [_rows(pair, dim) for pair in zip_longest(chunks, keywords)]
        if None not in rows:  # devices that got no chunk have no rows
            saw((*(row for row in rows if row is not None), *[0] * (len(target_gpus) - len(rows))))
        return chunks, keywords

    return scatter_kwargs


def _seeing_inputs(original: Callable[..., Any], saw: Saw) -> Callable[..., Any]:
    """torch's own DistributedDataParallel, in scripts that were converted by hand."""

    def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        rows = _rows((inputs, kwargs), 0)
        if rows is not None:
            saw((rows,))
        return original(self, *inputs, **kwargs)

    return forward


def _watch_template(cls: Any, saw: Saw) -> None:
    """The template's wrapper (templates/ddp.py: GraphDDP.enter), of which a converted script has its own copy."""
    original = vars(cls).get("enter")
    if original is None or "has_rows" not in vars(cls):
        return

    def enter(self: Any, *arguments: Any) -> Any:
        entered = original(self, *arguments)
        part = entered[-1]
        rows = _rows((part.inputs, part.kwargs), self.dim) if self.has_rows(part) else 0
        if rows is not None:
            saw((rows,))
        return entered

    cls.enter = enter


def _rows(values: Any, dim: int) -> int | None:
    """Of the first tensor that has the dimension; None if there is none."""
    return next((int(tensor.shape[dim]) for tensor in _tensors(values) if tensor.dim() > dim), None)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, dict):
        yield from _tensors(tuple(values.values()))
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _tensors(value)
