"""Records each optimizer step of the script in this process, through torch's own global hooks.

The script must not notice: no random number is drawn, no tensor of its is changed or kept, nothing that fails in here
reaches it (the record ends early and says why).
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim import optimizer as optimizers

from dp2ddp.trace.digests import bits_hash, sketch
from dp2ddp.trace.names import buffer_tables, living_roots, parameter_names
from dp2ddp.trace.records import End, Forward, Layout, Vector, rank_folder
from dp2ddp.trace.writer import Line, Writer

FULL_BYTES = 256 * 2**20  # values of all tensors are kept up to here, sketches after it


class StepLimit(SystemExit):
    """Ends the script after --steps; a SystemExit, so that `except Exception` in the script lets it pass."""


class Recorder:
    """One for each process; `start` before the script, `finish` after it."""

    def __init__(
        self, folder: Path, rank: int, last_step: int | None = None, full_bytes: int = FULL_BYTES
    ) -> None:
        self._writer = Writer(rank_folder(folder, rank))
        # Rank 0 speaks for all ranks that have the same hashes; of the others a sketch is enough to say how far off.
        self._full_bytes = full_bytes if rank == 0 else 0
        self._last_step = last_step
        self._steps = 0
        self._stopped = False
        self._losses: list[float] = []
        self._forwards: list[Forward] = []
        self._optimizers = 0
        self._known: weakref.WeakKeyDictionary[Any, _Known] = weakref.WeakKeyDictionary()
        self._buffers: dict[int, tuple[str, dict[str, torch.Tensor | None]]] = {}
        self._pending: Vector | None = None
        self._off = False
        self._undo: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        before = optimizers.register_optimizer_step_pre_hook(self._before_step)
        after = optimizers.register_optimizer_step_post_hook(self._after_step)
        # Tensor.backward calls torch.autograd.backward by this name (torch/_tensor.py)
        original = torch.autograd.backward
        torch.autograd.backward = functools.wraps(original)(self._seeing_losses(original))
        self._undo = [before.remove, after.remove, lambda: setattr(torch.autograd, "backward", original)]

    def saw_rows(self, rows: tuple[int, ...]) -> None:
        """A wrapped forward has been given so many rows for each replica (or for this rank)."""
        with self._lock:
            self._forwards.append(Forward(torch.is_grad_enabled(), rows))

    def finish(self) -> None:
        """Write what is pending, the buffers and the end; afterwards nothing is recorded."""
        with contextlib.suppress(Exception):
            self._write_end()
        self._off = True
        for undo in self._undo:
            undo()

    def _quietly(self, work: Callable[..., None], *args: Any) -> None:
        if self._off:
            return
        try:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                work(*args)
        except StepLimit:
            raise
        except Exception as error:  # whatever it is, it is ours and not the script's
            self._off = True
            self._writer.write_remark(
                f"the record ends at step {self._steps}: {type(error).__name__}: {error}"
            )

    def _seeing_losses(self, original: Callable[..., None]) -> Callable[..., None]:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            # A reentrant checkpoint runs a backward within the backward, once in each replica: no loss of the script.
            if torch._C._current_graph_task_id() == -1:
                self._quietly(self._note_loss, tensors)
            original(tensors, *args, **kwargs)

        return backward

    def _note_loss(self, tensors: Any) -> None:
        each = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        self._losses.append(float(sum(tensor.detach().double().sum().item() for tensor in each)))

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._quietly(self._note_gradients, optimizer)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._quietly(self._note_step, optimizer)
        if self._stopped:
            raise StepLimit(0)

    def _note_gradients(self, optimizer: Any) -> None:
        self._pending = self._vector(
            [parameter.grad for parameter in _parameters(optimizer)], _parameters(optimizer)
        )

    def _note_step(self, optimizer: Any) -> None:
        parameters = _parameters(optimizer)
        known = self._know(optimizer, parameters)
        assert self._pending is not None
        line = Line(
            step=self._steps,
            optimizer=known.ordinal,
            layout=known.layout,
            learning_rates=tuple(float(group.get("lr", 0.0)) for group in optimizer.param_groups),
            losses=tuple(self._losses),
            forwards=self._taken_forwards(),
        )
        vectors = {"gradients": self._pending, "parameters": self._vector(parameters, parameters)}
        self._writer.write_step(line, vectors)
        self._losses, self._pending = [], None
        self._steps += 1
        self._stopped = self._last_step is not None and self._steps >= self._last_step

    def _taken_forwards(self) -> tuple[Forward, ...]:
        with self._lock:
            taken, self._forwards = self._forwards, []
        return tuple(taken)

    def _know(self, optimizer: Any, parameters: list[torch.Tensor]) -> _Known:
        known = self._known.get(optimizer)
        if known is not None and known.count == len(parameters):
            return known
        ordinal = self._optimizers if known is None else known.ordinal
        self._optimizers += known is None
        roots = living_roots()
        known = _Known(
            ordinal, self._writer.write_layout(_layout(roots, parameters, ordinal)), len(parameters)
        )
        self._known[optimizer] = known
        self._buffers.update({id(table): (name, table) for name, table in buffer_tables(roots, parameters)})
        return known

    def _vector(
        self, tensors: list[torch.Tensor | None] | list[torch.Tensor], like: list[torch.Tensor]
    ) -> Vector:
        numbers = [_numbers(tensor, shape) for tensor, shape in zip(tensors, like, strict=True)]
        hashes = np.array([each[1] for each in numbers], dtype=np.uint64)
        size = sum(each[0].nbytes for each in numbers)
        if size > self._full_bytes:
            return Vector(hashes, None, np.array([sketch(each[0]) for each in numbers]))
        self._full_bytes -= size
        values = [each[0].reshape(-1) for each in numbers]
        return Vector(hashes, np.concatenate(values) if values else np.zeros(0), None)

    def _write_end(self) -> None:
        with torch.no_grad(), torch._C.DisableTorchFunction():
            buffers = _contents(self._buffers.values())
        end = End(
            steps=self._steps,
            losses=tuple(self._losses),
            forwards=self._taken_forwards(),
            stopped=self._stopped,
        )
        self._writer.write_end(end, buffers)


class _Known:
    """An optimizer that has been met."""

    def __init__(self, ordinal: int, layout: int, count: int) -> None:
        self.ordinal = ordinal
        self.layout = layout
        self.count = count


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _layout(roots: list[torch.nn.Module], parameters: list[torch.Tensor], ordinal: int) -> Layout:
    return Layout(
        names=tuple(parameter_names(roots, parameters, ordinal)),
        shapes=tuple(tuple(parameter.shape) for parameter in parameters),
        dtypes=tuple(str(parameter.dtype).removeprefix("torch.") for parameter in parameters),
    )


def _numbers(tensor: torch.Tensor | None, like: torch.Tensor) -> tuple[Any, int]:
    """The values as a flat float32 or float64 array, and the hash of their bits; for None zeros and 0."""
    if tensor is None:
        return np.zeros(like.numel() * (2 if like.is_complex() else 1), dtype=np.float32), 0
    dense = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    real = torch.view_as_real(dense) if dense.is_complex() else dense
    flat = real.contiguous().reshape(-1).cpu()
    hashed = bits_hash(flat.view(torch.uint8).numpy().data) if flat.numel() else 1
    exact = flat if flat.dtype in (torch.float32, torch.float64) else flat.double()
    return exact.numpy(), hashed


def _contents(tables: Any) -> dict[str, Any]:
    """The buffers that there are now, by the name they have in the model."""
    found: dict[str, Any] = {}
    for module, table in tables:
        for name, tensor in table.items():
            if tensor is not None and tensor.numel():
                numbers = tensor.detach().cpu()
                found[f"{module}.{name}" if module else name] = _as_array(numbers)
    return found


def _as_array(tensor: torch.Tensor) -> Any:
    return (tensor.double() if tensor.dtype == torch.bfloat16 else tensor).contiguous().numpy().copy()
