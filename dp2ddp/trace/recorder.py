"""Records each optimizer step of the script in this process, through torch's own global hooks.

The script must not notice: no random number is drawn, no tensor of its is changed or kept, nothing that fails in here
reaches it (the record ends early and says why). What happens between the steps comes from the observers in
dp2ddp.runtime, which call `add` and the `saw_` methods.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.optim import optimizer as optimizers

from dp2ddp.taps import Inside, Taps
from dp2ddp.trace.final import Models, unchecked_of_optimizer, unchecked_settings
from dp2ddp.trace.record_folder import rank_folder
from dp2ddp.trace.records import End, Layout, Unchecked, Vector
from dp2ddp.trace.tensor_names import KnownOptimizer, Table, living_roots, named_tensors, parameters_of
from dp2ddp.trace.tensors import as_array, bytes_of, sum_of, vector_of
from dp2ddp.trace.unstepped import Unclipped, Unstepped, events_between
from dp2ddp.trace.writer import FULL_BYTES, Collected, Keeper, StepLine, Writer

_LARGE, _SELDOM = 4 << 20, 8  # bytes of an optimizer's state that is hashed every so many steps only
# backward passes at which models are looked for: what a function made is gone when the script ends
_LOOKS = {8**power for power in range(12)}
_SMALL = 1 << 20  # elements; a larger buffer is a table that stays as it is


class StepLimit(SystemExit):
    """Ends the script after --steps; a SystemExit, so that `except Exception` in the script lets it pass."""


def _of_the_record(work: Callable[..., None]) -> Callable[..., None]:
    """A part of the record's work, done `quietly`."""

    @functools.wraps(work)
    def quiet(self: Recorder, *args: Any) -> None:
        self.quietly(work, self, *args)

    return quiet


class Recorder:
    """Records the steps of one rank, or of DataParallel's one process: `start` before the script, `finish` after it.

    folder: of the run's record; this rank writes into a folder of its own there (docs/architecture.md).
    last_step: after so many optimizer steps the script is ended by StepLimit.
    full_bytes: how many bytes of values are kept on rank 0; other ranks keep hashes and sketches.
    """

    def __init__(
        self, folder: Path, rank: int, last_step: int | None = None, full_bytes: int = FULL_BYTES
    ) -> None:
        self._writer = Writer(rank_folder(folder, rank))
        # Rank 0 speaks for all ranks that have the same hashes; of the others a sketch is enough to say how far off.
        room = full_bytes if rank == 0 else 0
        self._keeper, self._keeper_beside = Keeper(room), Keeper(room // 4)
        self._last_step = last_step
        self._steps = 0
        self._stopped = False
        self._broken = ""
        self._events = Collected()
        self.add = self._events.add
        self._nothing = self._events.peek()
        self._unclipped = Unclipped()
        self._unstepped = Unstepped(living_roots, room // 4)
        self._optimizers: weakref.WeakKeyDictionary[Any, KnownOptimizer] = weakref.WeakKeyDictionary()
        self._ordinals: set[int] = set()
        self._tables: dict[int, Table] = {}
        self._models = Models()
        self._backwards = 0
        self._stepped: dict[int, int] = {}  # id of a parameter -> hash of what the last step left in it
        self._rank = rank
        self._called: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._first_buffers: dict[int, torch.Tensor] = {}
        self._off = self._in_child = False
        self._in_grad = Inside()
        self._unchecked: set[Unchecked] = set()
        self._taps = Taps()

    # ---- the observers' end

    @_of_the_record
    def saw_module(self, module: torch.nn.Module) -> None:
        """A wrapped model is about to be called: if it is for the first time, its buffers are those of the start."""
        if module not in self._called:
            self._called.add(module)
            small = {id(buffer): buffer for buffer in module.buffers() if buffer.numel() <= _SMALL}
            self._first_buffers.update({key: buffer.detach().clone() for key, buffer in small.items()})

    @_of_the_record
    def saw_clipping(self, parameters: Iterable[torch.Tensor], limit: Any) -> None:
        """The gradients of `parameters` are about to be clipped to `limit`, a norm or a value."""
        if math.isfinite(float(limit)):  # clip_grad_norm_ without a limit measures, and clips nothing
            self._unclipped.note(parameters)
            self.add("limits", float(limit))

    def saw_precision(self, dtype: str) -> None:
        """Autocast has been asked for."""
        self.add("precision", dtype)
        self._unchecked.add(Unchecked.AUTOCAST)

    def saw_host_draws(self) -> None:
        """Replicas have drawn on the host."""
        self._unchecked.add(Unchecked.HOST_DRAWS)

    @_of_the_record
    def saw_cast(self, tensor: torch.Tensor, dtype: torch.dtype, place: str) -> None:
        """Half precision has been asked for by hand."""
        what = self._models.kind_of(tensor, self._backwards)
        if what:
            self.add("casts", (f"{what} cast to {str(dtype).removeprefix('torch.')}", place))

    @property
    def steps(self) -> int:
        """Optimizer steps so far, over all optimizers."""
        return self._steps

    # ---- torch's end

    def start(self) -> None:
        """Put the hooks on torch: optimizer steps, backward, zero_grad, compile; and stop in processes that are
        forked."""
        taps = self._taps
        taps.on_undo(optimizers.register_optimizer_step_pre_hook(self._before_step).remove)
        taps.on_undo(optimizers.register_optimizer_step_post_hook(self._after_step).remove)
        # Tensor.backward calls torch.autograd.backward by this name (torch/_tensor.py)
        taps.around("backward", self._seeing_losses, torch.autograd)
        taps.around("grad", self._seeing_results, torch.autograd)
        for owner in (torch.nn.Module, torch.optim.Optimizer):
            taps.before("zero_grad", lambda *args, **more: self.quietly(self._unstepped.before_end), owner)
        for place in (torch, torch.nn.Module):
            taps.before("compile", lambda *args, **more: self._unchecked.add(Unchecked.COMPILE), place)
        # a loader's worker, or whatever else the script forks, is not the process that this is the record of
        turn_off = weakref.WeakMethod(self._turn_off)
        os.register_at_fork(after_in_child=lambda: (method := turn_off()) and method())

    def finish(self) -> None:
        """Write what is pending, the buffers and the end; afterwards nothing is recorded."""
        if not self._in_child:
            try:
                self._write_end()
            except Exception as error:  # whatever it is, it is ours and not the script's
                self._write_broken_end(error)
        self._off = True
        self._taps.undo()

    def _turn_off(self) -> None:
        self._off = self._in_child = True

    def quietly(self, work: Callable[..., None], *args: Any) -> None:
        """Do some of the record's work; whatever fails ends the record, and not the script."""
        if self._off:
            return
        try:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                work(*args)
        except Exception as error:  # whatever it is, it is ours and not the script's
            self._off = True
            self._break_off(error)

    def _break_off(self, error: Exception) -> None:
        """The first reason is the one that counts."""
        self._broken = (
            self._broken or f"the record ends at step {self._steps}: {type(error).__name__}: {error}"
        )

    def _seeing_losses(self, backward: Callable[..., None], tensors: Any, *args: Any, **kwargs: Any) -> None:
        # A reentrant checkpoint runs a backward within the backward, once in each replica: no loss of the script.
        within = torch._C._current_graph_task_id() != -1
        if not within:
            self._note_loss(tensors)
        backward(tensors, *args, **kwargs)
        if not within:
            self.quietly(lambda: self._unstepped.after_backward(self._events.peek()))

    def _seeing_results(
        self, grad: Callable[..., Any], outputs: Any, inputs: Any, *args: Any, **kwargs: Any
    ) -> Any:
        within = torch._C._current_graph_task_id() != -1 or self._steps or self._in_grad.yes
        # torch.func's transforms call it for themselves, of tensors that lie nowhere
        if within or torch._C._functorch.peek_interpreter_stack() is not None:
            return grad(outputs, inputs, *args, **kwargs)
        self.quietly(self._unstepped.before_backward)
        with self._in_grad.entered():  # where torch functions are overridden, it calls itself by this name
            results = grad(outputs, inputs, *args, **kwargs)
        self._note_results(inputs, results)
        return results

    @_of_the_record
    def _note_results(self, inputs: Any, results: Any) -> None:
        is_tensor = isinstance(inputs, torch.Tensor)
        self._unstepped.returned([inputs] if is_tensor else list(inputs), results, self._events.peek())

    @_of_the_record
    def _note_loss(self, tensors: Any) -> None:
        each = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        self._backwards += 1
        if self._backwards in _LOOKS:
            self._models.look(living_roots())
        self._unclipped.gradients_change()
        self._unstepped.before_backward()
        self.add("losses", float(sum(map(sum_of, each))))

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        self._unchecked.update(unchecked_of_optimizer(optimizer))
        with_closure = _with_closure(args, kwargs, lambda: self.quietly(self._note_gradients, optimizer))
        self._begin_step(optimizer, with_closure is None)
        return with_closure

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.quietly(self._note_step, optimizer)
        if self._stopped:
            raise StepLimit(0)

    @_of_the_record
    def _begin_step(self, optimizer: Any, has_gradients: bool) -> None:
        if optimizer in self._optimizers:
            self._optimizers[optimizer].pending = {}  # of a step that ended with an error
        if has_gradients:
            self._note_gradients(optimizer)

    def _note_gradients(self, optimizer: Any) -> None:
        known = self._know(optimizer)
        if known.pending:  # the closure is called again (LBFGS): the first gradients are those of the start
            return
        parameters = parameters_of(optimizer)
        known.whole = self._keeper.keeps(self._steps, 2 * bytes_of(parameters))
        gradients = [parameter.grad for parameter in parameters]
        known.pending = {
            "gradients": vector_of(gradients, known.layout, whole=known.whole),
            **self._unclipped.take(parameters, known.layout, known.whole),
        }

    def _note_step(self, optimizer: Any) -> None:
        self._note_gradients(optimizer)  # if it has not called its closure
        self._unstepped.drop()
        known, parameters = self._optimizers[optimizer], parameters_of(optimizer)
        vectors = {
            **known.pending,
            "parameters": vector_of(parameters, known.layout, whole=known.whole),
            **self._beside(known, optimizer),
        }
        line = StepLine(
            step=self._steps,
            optimizer=known.ordinal,
            learning_rates=tuple(float(group.get("lr", 0.0)) for group in optimizer.param_groups),
            **_layouts(self._writer, vectors),
            **self._events.take(),
        )
        self._writer.write_step(line, vectors)
        known.pending = {}
        self._stepped.update(zip(map(id, parameters), vectors["parameters"].hashes.tolist(), strict=True))
        self._steps += 1
        self._stopped = self._last_step is not None and self._steps >= self._last_step

    def _beside(self, known: KnownOptimizer, optimizer: Any) -> dict[str, Vector]:
        """The optimizer's state and the models' buffers: hashes; with their values while there is room."""
        names, states = known.state(optimizer)
        layout, buffers = known.buffers()
        tables = {"state": (names, states), "buffers": (layout, buffers)}
        whole = known.whole and self._keeper_beside.keeps(self._steps, bytes_of([*states, *buffers]))
        if not whole and self._steps % _SELDOM and bytes_of(states) > _LARGE:
            del tables["state"]  # it follows from the gradients, which are hashed at every step
        return {
            name: vector_of(tensors, layout, whole=whole, sketched=False)
            for name, (layout, tensors) in tables.items()
            if tensors
        }

    def _know(self, optimizer: Any) -> KnownOptimizer:
        known = self._optimizers.get(optimizer)
        if known is not None and known.is_up_to_date(optimizer):
            return known
        roots, parameters = living_roots(), parameters_of(optimizer)
        ordinal = len(self._ordinals) if known is None else known.ordinal
        known = KnownOptimizer(ordinal, optimizer, roots)
        self._optimizers[optimizer] = known
        self._models.look(roots)
        self._tables.update({id(table): (name, table) for name, table in known.tables})
        if ordinal not in self._ordinals:
            self._ordinals.add(ordinal)
            self._note_start(known, parameters)
        return known

    def _note_start(self, known: KnownOptimizer, parameters: list[torch.Tensor]) -> None:
        layout, buffers = known.buffers()
        first = [self._first_buffers.pop(id(buffer), buffer) for buffer in buffers]
        buffers = [a if a.shape == b.shape else b for a, b in zip(first, buffers, strict=True)]
        whole = self._keeper_beside.keeps(0, bytes_of([*parameters, *buffers]))
        vectors = {
            "parameters": vector_of(parameters, known.layout, whole=whole),
            "buffers": vector_of(buffers, layout, whole=whole),
        }
        self._writer.write_initial(known.ordinal, vectors)

    def _write_end(self) -> None:
        buffers: dict[str, Any] = {}
        named = named_tensors(self._tables.values())
        self.quietly(lambda: buffers.update((name, as_array(tensor)) for name, tensor in named))
        whole = self._rank == 0
        self.quietly(lambda: self._writer.write_final(self._models.final(self._stepped, whole)))
        self.quietly(self._note_passes)
        unchecked = tuple(sorted(each.name for each in self._unchecked | set(unchecked_settings())))
        end = End(steps=self._steps, broken=self._broken, unchecked=unchecked, **self._events.take())
        self._writer.write_end(end, buffers)

    def _write_broken_end(self, error: Exception) -> None:
        """An end that says no more than why it is not whole; where even that has no room, stderr has it."""
        self._break_off(error)
        try:
            self._writer.write_broken_end(End(steps=self._steps, broken=self._broken))
        except Exception as again:
            print(f"dp2ddp: {self._broken}; nor could that be written: {again}", file=sys.stderr)

    def _note_passes(self) -> None:
        """Write the backward passes of a script that took no step and left its weights alone."""
        if self._steps or self._unstepped.has_moved():
            return
        self._unstepped.before_end()
        writer, passes, before = self._writer.of_passes(), self._unstepped.passes, self._nothing
        for each in passes[:1]:
            nothing = vector_of([], Layout(), whole=True)
            writer.write_initial(0, {"parameters": each.vectors["parameters"], "buffers": nothing})
        for number, each in enumerate(passes):
            line = StepLine(
                step=number,
                optimizer=0,
                learning_rates=(),
                source=each.source,
                **_layouts(writer, each.vectors),
                **events_between(before, each.events),
            )
            writer.write_step(line, each.vectors)
            before = each.events
        events = events_between(before, self._events.peek())
        writer.write_end(End(steps=len(passes), broken=self._broken, **events))


def _layouts(writer: Writer, vectors: dict[str, Vector]) -> dict[str, Any]:
    beside = {name: vectors[name] for name in ("state", "buffers") if name in vectors}
    layouts: dict[str, Any] = {name: writer.write_layout(each.layout, name) for name, each in beside.items()}
    return {"layout": writer.write_layout(vectors["gradients"].layout), **layouts}


def _with_closure(args: Any, kwargs: Any, note: Callable[[], None]) -> Any:
    """The arguments of a step, with `note` behind each call of the closure; None if there is no closure.

    Such an optimizer computes the gradients within its step (LBFGS; optimizer.step(closure)).
    """
    closure = kwargs.get("closure") or next(filter(callable, args[1:]), None)
    if closure is None:
        return None

    @functools.wraps(closure)
    def noting(*own: Any, **named: Any) -> Any:
        result = closure(*own, **named)
        note()
        return result

    def instead(value: Any) -> Any:
        return noting if value is closure else value

    return tuple(map(instead, args)), {name: instead(value) for name, value in kwargs.items()}
