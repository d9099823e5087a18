"""Gradients beside those that a step takes: as they were before the script clipped them; and of backward passes that no
optimizer step follows, all there is of a script that takes none.

The latter are read where they end: before zero_grad, or when the script ends, so that ranks may have put theirs
together by then. If they are gone by that time (set to None by hand), they count as backward left them. Results of
torch.autograd.grad are read as they are returned. With the first optimizer step all of it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dp2ddp.trace.records import Layout, Source, Vector
from dp2ddp.trace.tensor_names import buffer_tables, holds_numbers, named_tensors, parameter_names
from dp2ddp.trace.tensors import bytes_of, laid_out, layout_of, vector_of


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


MOST = 100  # passes that are kept
_LOOKS = 16  # passes at which new models are looked for

Events = dict[str, Any]  # as Collected.peek gives them: everything since the script began
Results = dict[int, torch.Tensor]  # id of a parameter -> what torch.autograd.grad returned for it


@dataclass(frozen=True)
class Pass:
    """Gradients that came to their end."""

    source: Source
    vectors: dict[str, Vector]  # gradients, parameters, buffers
    events: Events


@dataclass
class Unstepped:
    """What is collected as long as no optimizer has taken a step."""

    look: Callable[[], Iterable[nn.Module]]  # at all models alive
    room: int  # bytes of values that may be kept
    passes: list[Pass] = field(default_factory=list)
    _over: bool = False
    _models: dict[int, nn.Module] = field(default_factory=dict)
    _start: dict[int, tuple[torch.Tensor, int]] = field(default_factory=dict)  # parameters, and their bits
    # the newest backward pass, the parameters it reached
    _last: tuple[Pass, list[torch.Tensor]] | None = None
    _looks: int = 0

    def drop(self) -> None:
        """An optimizer steps."""
        self._over = True
        self.passes, self._models, self._start, self._last = [], {}, {}, None

    def before_backward(self) -> None:
        """A backward pass is about to begin: find new models, and keep the last pass if its gradients are gone."""
        if self._last is not None and not any(map(_has_gradient, self._last[1])):
            self._keep(self._last[0])
        if self._looks < _LOOKS and not self._over:
            self._looks += 1
            models = (root for root in self.look() if not vars(root).get("_is_replica"))
            self._models.update((id(root), root) for root in models)
            for parameter in _parameters(self._models.values()):
                self._start.setdefault(id(parameter), (parameter, _bits(parameter)))

    def after_backward(self, events: Events) -> None:
        """A backward pass of the script has ended."""
        if not self._over and len(self.passes) < MOST:
            self._last = self._read("backward", events)

    def before_end(self) -> None:
        """Gradients are about to be taken away, or the script ends."""
        if self._last is not None:
            last, reached = self._last
            self._keep(self._read("backward", last.events)[0] if any(map(_has_gradient, reached)) else last)

    def returned(self, inputs: Sequence[Any], results: Sequence[Any], events: Events) -> None:
        """By torch.autograd.grad."""
        if self._over or len(self.passes) >= MOST:
            return
        known = {id(each) for each in _parameters(self._models.values())}
        pairs = zip(inputs, results, strict=False)
        if gradients := {id(a): b for a, b in pairs if id(a) in known and b is not None}:
            self._keep(self._read("grad", events, gradients)[0])

    def has_moved(self) -> bool:
        """Whether parameters were changed without an optimizer: then those are what is compared."""
        return any(_bits(parameter) != bits for parameter, bits in self._start.values())

    def _keep(self, backward_pass: Pass) -> None:
        self.passes.append(backward_pass)
        self._last = None

    def _read(
        self, source: Source, events: Events, results: Results | None = None
    ) -> tuple[Pass, list[torch.Tensor]]:
        """The gradients of all models that any has reached: `results`, or else what their parameters hold."""

        def gradient(parameter: torch.Tensor) -> torch.Tensor | None:
            return parameter.grad if results is None else results.get(id(parameter))

        def is_reached(model: nn.Module) -> bool:
            return any(gradient(each) is not None for each in _parameters([model]))

        reached = list(filter(is_reached, self._models.values()))
        parameters = _parameters(reached)
        layout = layout_of(parameter_names(reached, parameters, 0), parameters)
        layout_beside, buffers = laid_out(named_tensors(buffer_tables(reached, parameters)))
        size = 2 * bytes_of(parameters) + bytes_of(buffers)
        whole = size <= self.room
        self.room -= size * whole
        vectors = {
            "gradients": vector_of(list(map(gradient, parameters)), layout, whole=whole),
            "parameters": vector_of(parameters, layout, whole=whole),
            "buffers": vector_of(buffers, layout_beside, whole=whole),
        }
        return Pass(source, vectors, events), parameters


def events_between(before: Events, after: Events) -> Events:
    """What came behind `before`; of precision and casts, which are there once, all."""
    events = dict(after)
    for name, value in before.items():
        if name == "collectives":
            counts = dict(value)
            events[name] = tuple((what, count - counts.get(what, 0)) for what, count in after[name])
        elif name not in ("precision", "casts"):
            events[name] = after[name][len(value) :] if isinstance(value, tuple) else after[name] - value
    return events


def _parameters(models: Iterable[nn.Module]) -> list[torch.Tensor]:
    """Each once."""
    parameters = {id(each): each for root in models for each in root.parameters()}
    return list(filter(holds_numbers, parameters.values()))


def _has_gradient(parameter: torch.Tensor) -> bool:
    gradient = parameter.grad
    return gradient is not None and bool(gradient.detach().count_nonzero())


def _bits(parameter: torch.Tensor) -> int:
    layout = layout_of([""], [parameter])
    return int(vector_of([parameter], layout, whole=False, sketched=False).hashes[0])
