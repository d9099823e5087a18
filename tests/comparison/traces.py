"""Small made-up traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dp2ddp.trace.digests import bits_hash, sketch
from dp2ddp.trace.records import End, Final, Forward, Layout, Trace, Vector, read_trace
from dp2ddp.trace.writer import StepLine, Writer

LAYOUT = Layout(("conv.weight", "conv.bias"), ((3,), (2,)), ("float64", "float64"))
GRADIENT = np.array([1.0, -2.0, 0.5, 0.25, 0.125])


def vector(
    values: np.ndarray, whole: bool = True, missing: Sequence[int] = (), layout: Layout = LAYOUT
) -> Vector:
    parts = [values[place] for place in layout.slices]
    hashes = [0 if i in missing else bits_hash(part.tobytes()) for i, part in enumerate(parts)]
    sketches = None if whole else np.stack([sketch(part) for part in parts])
    return Vector(np.array(hashes, dtype=np.uint64), values if whole else None, sketches)


@dataclass(frozen=True)
class Taken:
    """One optimizer step of a made-up record, with whatever belongs to it."""

    gradient: np.ndarray
    layout: Layout = LAYOUT
    optimizer: int = 0
    rates: tuple[float, ...] = (0.1,)
    parameter: np.ndarray | None = None  # what it led to; None: minus the gradient
    missing: Sequence[int] = ()  # parameters without a gradient
    unclipped: np.ndarray | None = None
    events: Mapping[str, Any] = field(default_factory=dict)  # of trace.records.Events
    state: Mapping[str, np.ndarray] = field(default_factory=dict)
    buffers: Mapping[str, np.ndarray] = field(default_factory=dict)


def record(
    folder: Path,
    steps: Sequence[Taken],
    *,
    rank: int = 0,
    initial: Mapping[str, np.ndarray] | None = None,
    final: Final | None = None,
    buffers: Mapping[str, np.ndarray] | None = None,
) -> Trace:
    """Rank 0 keeps values, other ranks sketches, as the recorder does."""
    writer = Writer(folder / f"rank{rank}")
    if final is not None:
        writer.write_final(final)
    if initial is not None:
        writer.write_initial(0, {"parameters": named(initial), "buffers": named({})})
    for number, step in enumerate(steps):
        vectors = {
            "gradients": vector(step.gradient, rank == 0, step.missing, step.layout),
            "parameters": vector(
                -step.gradient if step.parameter is None else step.parameter, rank == 0, (), step.layout
            ),
        }
        if step.unclipped is not None:
            vectors["unclipped"] = vector(step.unclipped, rank == 0, (), step.layout)
        beside = {
            name: named(each) for name, each in (("state", step.state), ("buffers", step.buffers)) if each
        }
        line = StepLine(
            step=number,
            optimizer=step.optimizer,
            layout=writer.write_layout(step.layout),
            learning_rates=step.rates,
            **{name: writer.write_layout(each.layout, name) for name, each in beside.items()},
            **step.events,
        )
        writer.write_step(line, {**vectors, **beside})
    writer.write_end(End(steps=len(steps)), dict(buffers or {}))
    return read_trace(folder, rank)


def trace(
    folder: Path,
    gradients: Sequence[np.ndarray],
    *,
    rank: int = 0,
    parameters: Sequence[np.ndarray] | None = None,
    rates: Sequence[float] | None = None,
    losses: Sequence[float] | None = None,
    missing: Sequence[int] = (),
    buffers: dict[str, np.ndarray] | None = None,
    begun: Layout = LAYOUT,
) -> Trace:
    """Steps of one optimizer. The first step may have another layout."""
    steps = [
        Taken(
            gradient,
            LAYOUT if step else begun,
            rates=(rates[step] if rates else 0.1,),
            parameter=parameters[step] if parameters else None,
            missing=missing,
            events={"losses": (losses[step] if losses else 1.0,), "forwards": (Forward(True, (3, 2)),)},
        )
        for step, gradient in enumerate(gradients)
    ]
    return record(folder, steps, rank=rank, buffers=buffers)


def named(tensors: Mapping[str, np.ndarray]) -> Vector:
    layout = Layout(
        tuple(tensors), tuple(each.shape for each in tensors.values()), ("float64",) * len(tensors)
    )
    hashes = np.array([bits_hash(each.tobytes()) for each in tensors.values()], dtype=np.uint64)
    values = np.concatenate([np.zeros(0), *(each.reshape(-1) for each in tensors.values())])
    return Vector(hashes, values, None, layout)


def two_optimizers(
    folder: Path,
    names: tuple[str, str],
    starts: tuple[float, float],
    trained: float,
    gradient: float = 1.0,
    rank: int = 0,
) -> Trace:
    """A step of each."""
    writer = Writer(folder / f"rank{rank}")
    for optimizer, (name, start) in enumerate(zip(names, starts, strict=True)):
        begun, now, after = (named({name: np.full(3, value)}) for value in (start, gradient, trained))
        layout = writer.write_layout(begun.layout)
        writer.write_initial(optimizer, {"parameters": begun, "buffers": named({})})
        line = StepLine(step=optimizer, optimizer=optimizer, layout=layout, learning_rates=(0.1,))
        writer.write_step(line, {"gradients": now, "parameters": after})
    writer.write_end(End(steps=2), {})
    return read_trace(folder, rank)
