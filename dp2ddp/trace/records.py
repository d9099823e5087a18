"""The record of a run: one `Step` for each optimizer step, kept as safetensors and JSON, never as pickle.

docs/architecture.md says what lies where in a rank's folder. This module does not import torch, so that the process
that compares need not either.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct, convert

from dp2ddp.errors import TraceError
from dp2ddp.trace.digests import SKETCH, Floats, sketch
from dp2ddp.trace.record_folder import rank_folder


@dataclass(frozen=True)
class Layout:
    """How the parameters of an optimizer (or other named tensors) lie one behind the other in a flat vector."""

    names: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of each tensor; a complex one counts as two."""
        shapes = zip(self.shapes, self.dtypes, strict=True)
        return tuple(math.prod(shape) * (2 if dtype.startswith("complex") else 1) for shape, dtype in shapes)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where each tensor lies in the flat vector."""
        ends = np.cumsum(self.sizes).tolist()
        return tuple(slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True))

    def followed_by(self, other: Layout) -> Layout:
        """The layout of this vector with another one behind it."""
        return Layout(self.names + other.names, self.shapes + other.shapes, self.dtypes + other.dtypes)


@dataclass(frozen=True)
class Vector:
    """Some tensors of one step: a hash of every tensor, and either all values or a sketch of them."""

    hashes: npt.NDArray[np.uint64]  # (tensors,) of the bits; 0 for a tensor that is None
    values: Floats | None  # (elements,)
    sketch: npt.NDArray[np.float64] | None  # (tensors, 1 + PROJECTIONS)
    layout: Layout = Layout()  # filled in when a record is read

    def sketched(self, layout: Layout) -> npt.NDArray[np.float64]:
        """The sketch of each tensor, (tensors, 1 + PROJECTIONS): the recorded one, or made from the values."""
        if self.sketch is not None:
            return self.sketch
        assert self.values is not None
        if not layout.names:
            return np.zeros((0, SKETCH))
        return np.stack([sketch(self.values[place]) for place in layout.slices])

    def followed_by(self, other: Vector) -> Vector:
        """Both, one behind the other: values if both have them, else sketches."""
        whole = self.values is not None and other.values is not None
        return Vector(
            np.concatenate([self.hashes, other.hashes]),
            np.concatenate([self.values, other.values]) if whole else None,
            None if whole else np.concatenate([each.sketched(each.layout) for each in (self, other)]),
            self.layout.followed_by(other.layout),
        )


class FinalKind(IntEnum):
    """What a tensor of a model is when the script ends."""

    BUFFER = 0
    UNSTEPPED = 1  # a parameter that no optimizer has stepped
    SETTLED = 2  # a parameter as the last step left it
    CHANGED = 3  # a parameter that was changed behind the last step


@dataclass(frozen=True)
class Final:
    """What the models hold when the script ends."""

    vector: Vector
    kinds: npt.NDArray[np.uint8]  # (tensors,) of FinalKind


class Forward(Struct, frozen=True, array_like=True):
    """One call of a wrapped model: DataParallel, torch's DistributedDataParallel, or the template's."""

    training: bool  # in training mode, with gradients enabled
    rows: tuple[int, ...]  # of each replica (ddp: of this rank)
    digests: tuple[int, ...] = ()  # 64 bits of each row of the inputs, in order
    firsts: tuple[int, ...] = ()  # the same of the first tensor alone, where there are several with rows


# where a step's gradients are from: an optimizer's step; a backward pass, or torch.autograd.grad, that none follows
Source = Literal["step", "backward", "grad"]
SCALED = "losses scaled by a GradScaler"  # among the casts of a step


class Draw(Struct, frozen=True, array_like=True):
    """A batch that the script took from a DataLoader."""

    loader: int  # ordinal of its data set, by first use
    indices: tuple[int, ...] | None  # as the sampler said; None for an iterable data set
    streams: tuple[int, ...] = ()  # digests of the random streams, where loading began to draw from them


@dataclass(frozen=True, kw_only=True)
class Events:
    """What happened since the optimizer step before."""

    losses: tuple[float, ...] = ()  # what backward was called on
    forwards: tuple[Forward, ...] = ()
    draws: tuple[Draw, ...] = ()
    clips: tuple[float, ...] = ()  # total norms that clip_grad_norm_ returned
    limits: tuple[float, ...] = ()  # of each clip_grad_*: the largest norm or value that it lets pass
    skipped: int = 0  # calls of GradScaler.step that did not step
    scheduled: int = 0  # calls of a scheduler's step
    # dtypes that autocast was asked for ("float16"), also in the float64 stage
    precision: tuple[str, ...] = ()
    # half precision asked for by hand, in float64: what, the user's line
    casts: tuple[tuple[str, str], ...] = ()
    collectives: tuple[tuple[str, int], ...] = ()  # (name, calls)

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """The rows of each replica, for each forward of a wrapped model."""
        return tuple(forward.rows for forward in self.forwards)


@dataclass(frozen=True, kw_only=True)
class Step(Events):
    """One optimizer step. A gradient that was None has hash 0 (and zeros for values)."""

    number: int  # counted over all optimizers, from 0
    optimizer: int
    layout: Layout
    learning_rates: tuple[float, ...]  # one for each parameter group
    gradients: Vector  # just before the step: unscaled and clipped
    parameters: Vector  # just after it
    unclipped: Vector | None = None  # gradients before the first clip_grad_*; None if nothing was clipped
    state: Vector | None = None  # the optimizer's state, just after the step; None: not kept for this step
    buffers: Vector | None = None  # of the models whose parameters these are, just after the step
    source: Source = "step"


class Unchecked(Enum):
    """What a script asks of real GPUs and compilers, and virtual devices leave out: a verdict says nothing about it.

    The value is how it is told.
    """

    COMPILE = "torch.compile (it ran as plain Python)"
    AUTOCAST = "the GPU's kernels of autocast"
    TF32 = "TF32"
    CUDNN = "cuDNN's choice of kernels"
    FUSED = "the GPU's fused optimizer"
    HOST_DRAWS = "which replica draws which number on the host (DataParallel's threads race for them)"


@dataclass(frozen=True, kw_only=True)
class End(Events):
    """What was known when the script ended; the events are those after the last step."""

    steps: int
    broken: str = ""  # why the record ends before the script does: nothing is known of what came later
    # names of Unchecked: what the script asked for, and virtual devices leave out
    unchecked: tuple[str, ...] = ()


PASSES = "passes-"


@dataclass(frozen=True)
class Trace:
    """What one rank (or the one process of DataParallel) did; steps are read from disk one at a time."""

    folder: Path
    rank: int
    part: str = ""  # what names of files begin with; PASSES: its "steps" are backward passes

    @property
    def unstepped(self) -> bool:
        """Whether its "steps" are backward passes of a script whose optimizers take none."""
        return self.part == PASSES

    @cached_property
    def passes(self) -> Trace | None:
        """The backward passes of a script that takes no step; None if it does, or moves weights in another way."""
        passes = Trace(self.folder, self.rank, PASSES)
        return passes if passes.last_line and not self.lines else None

    def _path(self, name: str) -> Path:
        return self.folder / f"{self.part}{name}"

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """Each set of parameters that an optimizer has stepped; steps refer to them by number."""
        return tuple(convert(line, Layout) for line in json_lines(self._path("layouts.jsonl")))

    @cached_property
    def others(self) -> tuple[Layout, ...]:
        """Each set of optimizer states and of buffers; steps refer to them by number."""
        return tuple(convert(line, Layout) for line in json_lines(self._path("others.jsonl")))

    @cached_property
    def lines(self) -> tuple[dict[str, Any], ...]:
        """What steps.jsonl says of each step: all but its tensors."""
        return tuple(json_lines(self._path("steps.jsonl")))

    def __len__(self) -> int:
        return len(self.lines)

    @cached_property
    def end(self) -> End | None:
        """What was known when the script ended; None if nobody saw the end (it was killed)."""
        digests = _load(self._path("end.safetensors")).get("digests")
        return next((convert(_with_digests(line, digests), End) for line in self.last_line), None)

    def steps(self) -> Iterator[Step]:
        """Every step with its tensors, one at a time; about 8 MB are in memory at once."""
        block: tuple[int, dict[str, Any]] = (-1, {})
        for line in self.lines:
            if block[0] != line["block"]:
                block = (line["block"], _load(self._path(f"block-{line['block']:05d}.safetensors")))
            yield _step(line, block[1], self.layouts[line["layout"]], self.others)

    @cached_property
    def last_line(self) -> tuple[dict[str, Any], ...]:
        """What happened behind the last step, in the form of a step's line; () if nobody saw the end."""
        return tuple(json_lines(self._path("end.json"), whole=False))

    def rows(self) -> tuple[tuple[int, ...], ...]:
        """The rows of each replica, for each forward of a wrapped model in the whole run."""
        lines = (*self.lines, *self.last_line)
        return tuple(tuple(rows) for line in lines for _, rows, *_ in line["forwards"])

    def initial(self, optimizer: int | None = None) -> Vector:
        """Parameters before each optimizer's first step, then buffers before the first forward of a wrapped model.

        optimizer: of this one alone.
        """
        whole = Vector(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.float32), None)
        for line in json_lines(self._path("initial.jsonl")):
            if optimizer not in (None, line["optimizer"]):
                continue
            block = _load(self._path(f"initial-{line['optimizer']:05d}.safetensors"))
            for part, layouts in (("parameters", self.layouts), ("buffers", self.others)):
                vector = _vector(block, part, layouts[line[part]])
                whole = whole if vector is None else whole.followed_by(vector)
        return whole

    @cached_property
    def final(self) -> Final | None:
        """What the models hold when the script ends; None: nobody saw it."""
        lines, block = json_lines(self.folder / "final.jsonl"), _load(self.folder / "final.safetensors")
        vector = _vector(block, "tensors", convert(lines[0], Layout)) if lines else None
        return None if vector is None else Final(vector, block["kinds"])

    def buffers(self) -> dict[str, npt.NDArray[Any]]:
        """Buffers of the stepped models when the script ends, by name."""
        return _load(self.folder / "buffers.safetensors")


def read_trace(folder: Path, rank: int) -> Trace:
    """The record that rank `rank` left in a trace folder (DataParallel: rank 0); TraceError if it left none."""
    place = rank_folder(folder, rank)
    if not place.is_dir():
        raise TraceError(f"{place}: rank {rank} left no record; did the script start at all?")
    return Trace(place, rank)


def gaps(folder: Path, ranks: Iterable[int]) -> Iterator[str]:
    """What the records of ranks that have ended do not hold, and why."""
    for rank in ranks:
        end = read_trace(folder, rank).end
        if end is None:
            yield f"rank {rank}: the record has no end"
        elif end.broken:
            yield f"rank {rank}: {end.broken}"


def json_lines(path: Path, whole: bool = True) -> list[Any]:
    """What a file holds, a line of JSON each; `whole`: a last line without an end does not count."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    complete = text[: text.rfind("\n") + 1] if whole else text  # a killed process may leave half a line
    return [json.loads(line) for line in complete.splitlines()]


def _load(path: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return load_file(path) if path.exists() else {}


def _step(line: dict[str, Any], block: dict[str, Any], layout: Layout, others: tuple[Layout, ...]) -> Step:
    def other(part: str) -> Vector | None:
        place = line[part]
        return None if place is None else _vector(block, f"{key}.{part}", others[place])

    key = str(line["step"])
    gradients, parameters = (_vector(block, f"{key}.{part}", layout) for part in ("gradients", "parameters"))
    assert gradients is not None
    assert parameters is not None
    events = convert(_with_digests(line, block.get(f"{key}.digests")), Events)
    return Step(
        **vars(events),
        number=line["step"],
        optimizer=line["optimizer"],
        layout=layout,
        learning_rates=tuple(line["learning_rates"]),
        gradients=gradients,
        parameters=parameters,
        unclipped=_vector(block, f"{key}.unclipped", layout),
        state=other("state"),
        buffers=other("buffers"),
        source=line["source"],
    )


def _vector(block: dict[str, Any], key: str, layout: Layout) -> Vector | None:
    hashes = block.get(key + ".hashes")
    if hashes is None:
        return None
    return Vector(hashes, block.get(key + ".values"), block.get(key + ".sketch"), layout)


def _with_digests(line: dict[str, Any], digests: npt.NDArray[np.uint64] | None) -> dict[str, Any]:
    """With the digests of rows in the place of their numbers; they lie one behind the other in the block."""
    rest = iter(() if digests is None else digests.tolist())
    forwards = [
        (training, rows, *(tuple(islice(rest, count)) for count in counts))
        for training, rows, *counts in line["forwards"]
    ]
    return {**line, "forwards": forwards}
