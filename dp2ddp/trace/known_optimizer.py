"""An optimizer that has been met: what its tensors are called, found out once and again when they change.

What it remembers between steps are named tensors, too: `exp_avg of conv1.weight`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from dp2ddp.trace.parameter_names import buffer_tables, named_tensors, parameter_names
from dp2ddp.trace.records import Layout, Vector
from dp2ddp.trace.tensors import layout_of


def state_tensors(
    optimizer: Any, parameters: Sequence[torch.Tensor], names: Sequence[str]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors and numbers, also in lists (LBFGS keeps its history in them), in the order of the parameters."""
    state = getattr(optimizer, "state", {})
    for parameter, name in zip(parameters, names, strict=True):
        # .get: looking a parameter up in this defaultdict would make an entry, which the optimizer may ask for
        for key, tensor in _tensors("", state.get(parameter, {})):
            yield f"{key} of {name}", tensor


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (bool, int, float)):
        yield name, torch.tensor(float(value), dtype=torch.float64)
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _tensors(f"{name}.{key}" if name else str(key), value[key])
    elif isinstance(value, (list, tuple)):
        for place, each in enumerate(value):
            yield from _tensors(f"{name}[{place}]", each)


class KnownOptimizer:
    """Holds names and layouts, and of the script's objects only its modules' tables of buffers."""

    def __init__(self, ordinal: int, optimizer: Any, roots: list[nn.Module]) -> None:
        parameters = parameters_of(optimizer)
        self.ordinal = ordinal
        self.layout = layout_of(parameter_names(roots, parameters, ordinal), parameters)
        self.tables = buffer_tables(roots, parameters)
        self.whole = False  # whether this step's values are kept
        self.pending: dict[str, Vector] = {}  # gradients of the step that is under way
        self._identities = _identities(parameters)
        self._state, self._buffers = _Remembered(), _Remembered()

    def is_up_to_date(self, optimizer: Any) -> bool:
        """Whether the optimizer still has the tensors that it had."""
        return self._identities == _identities(parameters_of(optimizer))

    def state(self, optimizer: Any) -> tuple[Layout, list[torch.Tensor]]:
        """What the optimizer remembers."""
        return self._state.layout(state_tensors(optimizer, parameters_of(optimizer), self.layout.names))

    def buffers(self) -> tuple[Layout, list[torch.Tensor]]:
        """The buffers of the models that hold the optimizer's parameters, and their layout."""
        return self._buffers.layout(named_tensors(self.tables))


class _Remembered:
    """The layout of named tensors, which are mostly the same as the last time."""

    def __init__(self) -> None:
        self._seen: tuple[list[str], list[Any]] = ([], [])
        self._layout = Layout()

    def layout(self, named: Iterable[tuple[str, torch.Tensor]]) -> tuple[Layout, list[torch.Tensor]]:
        pairs = list(named)
        names, tensors = [name for name, _ in pairs], [tensor for _, tensor in pairs]
        seen = (names, [(tensor.shape, tensor.dtype) for tensor in tensors])
        if seen != self._seen:
            self._seen, self._layout = seen, layout_of(names, tensors)
        return self._layout, tensors


def parameters_of(optimizer: Any) -> list[torch.Tensor]:
    """The parameters of all groups of an optimizer, in their order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _identities(parameters: Sequence[torch.Tensor]) -> list[tuple[int, torch.Size, torch.dtype]]:
    return [(id(parameter), parameter.shape, parameter.dtype) for parameter in parameters]
