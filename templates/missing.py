"""Parameters that a backward pass left out: DataParallel gives them zeros, and the reducer waits for them."""

from collections.abc import Sequence
from typing import Any

import torch

from .whole import ZeroGradients


class MissingGradients:
    """Watches the backward passes of one model, and gives zeros to parameters that got no gradient.

    DataParallel gives unused parameters zeros, not None (weight decay and momentum act on them), and
    DistributedDataParallel's reducer wants to hear of every parameter on every rank. Those that were left out once
    are `known`: the next forward passes bring them their zeros early, so that no bucket of gradients waits for them.
    """

    def __init__(self) -> None:
        self.known: set[int] = set()
        self.parameters: Sequence[torch.nn.Parameter] = ()
        self.before: list[tuple[Any, int]] = []
        self.under_way = False

    def expect(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """These parameters are to get gradients by the next backward pass."""
        self.parameters, self.under_way = parameters, False

    def watch(self, whole: torch.Tensor) -> None:
        """Notice the backward pass that comes by this result of the forward pass."""
        if whole.grad_fn is not None:
            whole.grad_fn.register_prehook(self.begin)

    def begin(self, gradients: Any) -> None:
        """A backward pass comes by, before any parameter gets its gradient."""
        if not self.under_way:
            self.under_way = True
            self.before = self.gradients()
            torch.autograd.Variable._execution_engine.queue_callback(self.end)

    def end(self) -> None:
        """The backward pass is over."""
        missing = [
            parameter
            for parameter, (before, version) in zip(self.parameters, self.before, strict=True)
            if parameter.grad is before and (before is None or before._version == version)
        ]
        self.under_way, self.before = False, []
        if missing:
            self.known.update(map(id, missing))
            with torch.enable_grad():
                ZeroGradients.apply(torch.zeros((), requires_grad=True), *missing).backward()

    def gradients(self) -> list[tuple[Any, int]]:
        """Each parameter's gradient, and a number that grows when something is added to it."""
        gradients = [parameter.grad for parameter in self.parameters]
        return [(None, 0) if gradient is None else (gradient, gradient._version) for gradient in gradients]
