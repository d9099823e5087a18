"""What DataParallel copies between its devices: weights to the replicas, inputs, outputs, gradients back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch.nn.parallel import comm

from dp2ddp.costs.operations import bytes_of, tensors_in
from dp2ddp.costs.tally import Tally
from dp2ddp.taps import Taps

PlaceOf = Callable[[torch.Tensor], int]
"""The index of the device that a tensor is on; negative: the host."""
# Any throughout: functions of torch.nn.parallel.comm


class Copies:
    """Follows torch.nn.parallel.comm, through which DataParallel copies everything."""

    def __init__(self, copies: Tally, moves: Tally, place_of: PlaceOf, made: Callable[[Any], None]) -> None:
        """`made` is told of what each of them returns."""
        self._copies, self._moves, self._place_of, self._made = copies, moves, place_of, made
        self._here = threading.local()
        for name, note in (
            ("broadcast", self._note_weights),
            ("broadcast_coalesced", self._note_weights),
            ("scatter", self._note_inputs),
            ("gather", self._note_outputs),
            ("reduce_add", self._note_gradients),
            ("reduce_add_coalesced", self._note_gradients),
        ):
            Taps().around(name, partial(self._copying, note), comm)

    @property
    def inside(self) -> bool:
        """Whether one of them is under way in this thread."""
        return getattr(self._here, "deep", False)

    def _copying(self, note: Callable[[Any, Any], None], original: Any, *args: Any, **kwargs: Any) -> Any:
        if self.inside:  # one of them calls another
            return original(*args, **kwargs)
        self._here.deep = True
        try:
            result = original(*args, **kwargs)
        finally:
            self._here.deep = False
        with contextlib.suppress(Exception):  # the script never fails because of us
            note((*args, *kwargs.values()), result)
            self._made(result)
        return result

    def _note_weights(self, given: Any, result: Any) -> None:
        home = self._place_of(next(tensors_in(given)))
        self._add("weights", (each for each in tensors_in(result) if self._place_of(each) != home))

    def _note_inputs(self, given: Any, result: Any) -> None:
        home = self._place_of(given[0])
        if home < 0:
            for each in tensors_in(result):
                self._moves.add("moved", bytes_of(each))
        else:
            self._add("inputs", (each for each in tensors_in(result) if self._place_of(each) != home))

    def _note_outputs(self, given: Any, result: Any) -> None:
        home = self._place_of(result)
        self._add("outputs", (each for each in tensors_in(given[0]) if self._place_of(each) != home))

    def _note_gradients(self, given: Any, result: Any) -> None:
        """Those of the first device, where they are added up, stay where they are."""
        others = given[0][1:] if len(given[0]) > 1 else ()
        self._add("gradients", tensors_in(list(others)))

    def _add(self, kind: str, copied: Iterable[torch.Tensor]) -> None:
        """What is split or gathered in a backward pass are the gradients of outputs and inputs."""
        sizes = [bytes_of(each) for each in copied]
        if sizes:
            self._copies.add("gradients" if torch._C._current_graph_task_id() != -1 else kind, sum(sizes))
