"""Gradients as they were before the script clipped them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from dp2ddp.trace.records import Layout, Vector
from dp2ddp.trace.tensors import vector_of


class Unclipped:
    """Copies of gradients, from the first clipping behind a backward pass to the step."""

    def __init__(self) -> None:
        # id of the parameter -> backward pass, gradient
        self._copies: dict[int, tuple[int, torch.Tensor]] = {}
        self._backwards = 0

    def gradients_change(self) -> None:
        """A backward pass begins: what was copied before it is not this step's, or not the whole."""
        self._backwards += 1

    def note(self, parameters: Iterable[torch.Tensor]) -> None:
        """Keep copies of these parameters' gradients, if none were kept since the last backward pass."""
        for parameter in parameters:
            known = self._copies.get(id(parameter))
            if parameter.grad is not None and (known is None or known[0] != self._backwards):
                self._copies[id(parameter)] = (self._backwards, parameter.grad.detach().clone())

    def take(self, parameters: Sequence[torch.Tensor], layout: Layout, whole: bool) -> dict[str, Vector]:
        """{"unclipped": what the parameters' gradients were}; nothing if none of them was clipped."""
        copies = [self._copies.pop(id(parameter), (-1, None)) for parameter in parameters]
        if all(backward != self._backwards for backward, _ in copies):
            return {}
        gradients = [
            copy if backward == self._backwards else parameter.grad
            for (backward, copy), parameter in zip(copies, parameters, strict=True)
        ]
        return {"unclipped": vector_of(gradients, layout, whole=whole)}
