"""Memory that nobody has written: zeros on a stage.

A script that prints or saves a tensor which it has not filled yet gets whatever lay there, other numbers in each run;
two runs of one program would not be the same.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import torch

from .function_mode import Function, VirtualDevices


def fill_unwritten(mode: VirtualDevices) -> None:
    """Let torch.empty and its like return zeros."""

    def empty(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return zeroed(mode.run(func, args, kwargs))

    mode.handle(
        [
            torch.empty,
            torch.empty_like,
            torch.empty_strided,
            torch.empty_permuted,
            torch.Tensor.new_empty,
            torch.Tensor.new_empty_strided,
        ],
        empty,
    )


def zeroed(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunction(), torch.no_grad():
        return tensor.zero_()


def sizes_only(arguments: Sequence[Any]) -> bool:
    """Whether torch.Tensor(*arguments) is asked for a tensor of some size, and not for one of some data."""
    return all(isinstance(argument, (numbers.Integral, torch.Size)) for argument in arguments)
