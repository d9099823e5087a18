"""What DataParallel's replicas draw on the host: each of them from streams of its own.

Replicas are threads, and race for the host's streams (torch's default generator, numpy's, Python's): another run may
give their numbers to other replicas, so that no order is the right one. Here, and in the helpers of converted scripts
(templates/draws.py), replica r's streams begin at a number of the script's plus r, and nothing of what it draws
reaches the script; that goes on as if it had drawn that one number, if replica 0 drew any.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
import torch.nn.parallel.parallel_apply

from dp2ddp.runtime.virtual_cuda.random_streams import (
    HostStates,
    default_generator_lock,
    host_states,
    seed_host,
    set_host_states,
)
from dp2ddp.taps import Taps

# Any throughout: modules, their arguments, and states of generators.
APPLY = sys.modules["torch.nn.parallel.parallel_apply"]  # torch.nn.parallel has a function of that name
_WRAPPER = sys.modules["torch.nn.parallel.data_parallel"]


def let_replicas_draw_apart(taps: Taps) -> None:
    """DataParallel, data_parallel and parallel_apply run their replicas so."""
    taps.around("parallel_apply", _drawing_apart, APPLY, _WRAPPER, torch.nn.parallel)


def _drawing_apart(apply: Callable[..., Any], modules: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    draws = ReplicaDraws()
    try:
        outputs = apply([draws.of(r, module) for r, module in enumerate(modules)], *args, **kwargs)
    except BaseException:
        draws.end(failed=True)
        raise
    draws.end()
    return outputs


class ReplicaDraws:
    """The streams of the host around one forward of all replicas."""

    observers: ClassVar[list[Callable[[], None]]] = []  # told of forwards in which several replicas draw

    def __init__(self) -> None:
        generator = torch.default_generator
        self._script = host_states()
        self._seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
        self._after = generator.get_state()
        self._drew: set[int] = set()  # replicas that did
        self._begun = [self._script]  # where they began

    def of(self, replica: int, module: Callable[..., Any]) -> Callable[..., Any]:
        """A replica's call, with its own streams."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._streams(replica):
                return module(*args, **kwargs)

        return call

    @contextmanager
    def _streams(self, replica: int) -> Iterator[None]:
        with default_generator_lock:  # another replica that has given its turn away may draw on its device
            before = host_states()
            seed_host(self._seed + replica)
            self._begun.append(host_states())
        try:
            yield
        finally:
            with default_generator_lock:
                now = host_states()  # another replica's, where one waits for the other
                if not any(_same(begun, now) for begun in self._begun):
                    self._drew.add(replica)
                set_host_states(before)

    def end(self, *, failed: bool = False) -> None:
        """The script goes on."""
        set_host_states(self._script)
        if len(self._drew) > 1:
            for observe in self.observers:
                observe()
        if 0 in self._drew and not failed:
            torch.default_generator.set_state(self._after)


def _same(before: HostStates, after: HostStates) -> bool:
    (of_python, of_torch, (_, numbers, *place)), (python, host, (_, others, *there)) = before, after
    same_numpy = place == there and bool((numbers == others).all())
    return of_python == python and torch.equal(of_torch, host) and same_numpy
