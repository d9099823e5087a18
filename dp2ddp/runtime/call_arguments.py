"""What a call of a function of torch is given: its tensors, and its group of ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist


def tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among the arguments of a call; Any: whatever a torch function takes."""
    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (tuple, list)):
            tensors += tensors_in(value)
    return tensors


def group_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The group that a collective is asked for; None: that of all ranks."""
    return kwargs.get("group") or next((each for each in args if isinstance(each, dist.ProcessGroup)), None)
