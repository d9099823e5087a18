"""Counts what a step moves, sends and holds: an observer of every operation, so nothing is timed beside it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dp2ddp.costs.live import Live
from dp2ddp.costs.operations import Copies, Operations, PlaceOf, RealCopies, Tally, bytes_of, mean, tensors_in
from dp2ddp.costs.readings import Counted, Sent, write_or_say_why
from dp2ddp.costs.steps import Steps
from dp2ddp.taps import Taps, in_all_threads

_WAITS = {  # functions after which the host knows what a device has computed
    "item": "item",
    "tolist": "tolist",
    "cpu": "cpu",
    "__bool__": "bool",
    "__int__": "int",
    "__float__": "float",
    "__index__": "int",
    "__contains__": "bool",
    "__repr__": "print",
    "__format__": "print",
    "nonzero": "nonzero",
    "masked_select": "nonzero",
    "unique": "nonzero",
}
_MOVERS = {
    "to",
    "cuda",
    "type",
    "type_as",
    "as_tensor",
    "asarray",
    "tensor",
    "new_tensor",
}
# Any below: functions of torch with whatever they take and return


@dataclass(frozen=True)
class _Step:
    """What one step had."""

    collectives: Tally
    copies: Tally
    moves: Tally
    waits: Tally
    evaluated: bool


class Counter:
    """One for each process; `finish` writes what it counted."""

    def __init__(
        self, folder: Path, rank: int, warm_up: int, steps: int, devices: int, place_of: PlaceOf | None = None
    ) -> None:
        """`place_of`: of virtual devices, of which there are `devices`; real ones are asked themselves."""
        self._folder, self._rank, self._warm_up, self._devices = folder, rank, warm_up, devices
        self._pid = os.getpid()
        self._collectives, self._copies, self._moves, self._waits = Tally(), Tally(), Tally(), Tally()
        self._evaluated = False
        self._counted: list[_Step] = []
        self._place_of = place_of
        self._live = Live() if place_of else None
        real = None if place_of else RealCopies(self._moves, self._waits)
        self._mode = Operations(self._collectives, self._live, real)
        self._followed = Copies(self._copies, self._moves, place_of or _real_place, self._mark)
        self._steps = Steps(warm_up + steps, self._step)
        taps = Taps()
        in_all_threads(taps, [self._mode])
        taps.around("_engine_run_backward", self._backward, torch.autograd)

    # ---- the observers' end

    def saw_rows(self, rows: int, grad: bool) -> None:
        """So many rows are about to be given to the wrapped model."""
        self._evaluated |= not grad

    def called(self, func: Any, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """A function of torch, on virtual devices; `call` does it."""
        moved = self._moves.calls.total()
        self._mark(args)
        with self._mode.here.function():
            result = call()
        self._mark(result)
        with contextlib.suppress(Exception):
            self._note(func, args, result, moved)
        if self._live is not None and not self._mode.here.inside and not self._followed.inside:
            self._live.sample()
        return result

    def finish(self) -> None:
        """Write the reading; nothing in a process that was forked."""
        if os.getpid() == self._pid:
            write_or_say_why(self._reading, self._folder, self._rank)

    # ----

    def _note(self, func: Any, args: Any, result: Any, moved: int) -> None:
        assert self._place_of is not None
        name = getattr(func, "__name__", "")
        given = next(tensors_in(args), None)
        place = -1 if given is None else self._place_of(given)
        if place >= 0 and name in _WAITS:
            self._waits.add(_WAITS[name])
        elif name in _MOVERS and isinstance(result, torch.Tensor):
            self._note_move(place, result, moved)
        elif name == "copy_" and place >= 0 and self._place_of(args[1]) < 0:
            self._moves.add("moved", bytes_of(args[0]))

    def _note_move(self, place: int, result: torch.Tensor, moved: int) -> None:
        """A tensor that knows better what to move (a part of itself) has done so within, and was counted there."""
        assert self._place_of is not None
        target = self._place_of(result)
        if place < 0 <= target and self._moves.calls.total() == moved and not self._followed.inside:
            self._moves.add("moved", bytes_of(result))
        elif target < 0 <= place:
            self._waits.add("cpu")

    def _mark(self, values: Any) -> None:
        """Where tensors are said to be is where their storages are."""
        if self._live is None or self._place_of is None:
            return
        with contextlib.suppress(Exception), torch._C.DisableTorchFunction():
            for tensor in tensors_in(values):
                self._live.note(tensor, self._place_of(tensor))

    def _backward(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        with self._mode.here.backward():
            return original(*args, **kwargs)

    def _step(self, number: int) -> None:
        step = _Step(
            self._collectives.taken(),
            self._copies.taken(),
            self._moves.taken(),
            self._waits.taken(),
            self._evaluated,
        )
        self._evaluated = False
        if number == self._warm_up and self._live is not None:
            self._live.forget_peaks()
        if number > self._warm_up:
            self._counted.append(step)

    def _reading(self) -> Counted:
        kept = [step for step in self._counted if not step.evaluated] or self._counted
        optimizer = self._steps.first.now
        parameters = (
            [each for group in optimizer.param_groups for each in group["params"]] if optimizer else []
        )
        reading = Counted(
            self._steps.taken,
            devices=self._live.peaks(self._devices) if self._live else (),
            parameters=sum(map(bytes_of, parameters)),
        )
        if not kept:
            return reading
        moves = mean([step.moves for step in kept])
        return Counted(
            steps=reading.steps,
            collectives=mean([step.collectives for step in kept]),
            copies=mean([step.copies for step in kept]),
            moved=moves.get("moved", Sent(0, 0)).bytes,
            synchronisations={kind: sent.calls for kind, sent in mean([step.waits for step in kept]).items()},
            devices=reading.devices,
            parameters=reading.parameters,
        )


def _real_place(tensor: torch.Tensor) -> int:
    return tensor.device.index if tensor.is_cuda else -1
