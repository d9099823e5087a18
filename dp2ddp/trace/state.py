"""What an optimizer remembers between steps, as named tensors: `exp_avg of conv1.weight`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch


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
