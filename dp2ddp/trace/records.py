"""The record of a run: one `Step` for each optimizer step, kept as safetensors and JSON, never as pickle.

A rank's folder holds
    layouts.jsonl           one line for each set of parameters an optimizer has stepped: names, shapes, dtypes
    steps.jsonl             one line for each step: optimizer, learning rates, losses, rows
    block-NNNNN.safetensors the numbers of the steps since the last block (written before their lines: a crash
                            leaves a record that ends early, never a torn one)
    buffers.safetensors, end.json   written when the script ends
This module does not import torch, so that the process that compares need not either.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dp2ddp.errors import TraceError

Floats = npt.NDArray[np.floating[Any]]
PROJECTIONS = 4
_BLOCK = 1 << 14


@dataclass(frozen=True)
class Layout:
    """How the parameters of an optimizer lie one behind the other in a flat vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(int(np.prod(shape, dtype=np.int64)) for shape in self.shapes)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        ends = np.cumsum(self.sizes).tolist()
        return tuple(slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True))


@dataclass(frozen=True)
class Vector:
    """Parameters or gradients of one step: a hash of every tensor, and either all values or a sketch of them."""

    hashes: npt.NDArray[np.uint64]  # (tensors,) of the bits; 0 for a tensor that is None
    values: Floats | None  # (elements,)
    sketch: npt.NDArray[np.float64] | None  # (tensors, 2 + PROJECTIONS)

    def sketched(self, layout: Layout) -> npt.NDArray[np.float64]:
        if self.sketch is not None:
            return self.sketch
        assert self.values is not None
        return np.stack([sketch(self.values[place]) for place in layout.slices])


@dataclass(frozen=True)
class Step:
    """One optimizer step. A gradient that was None has hash 0 (and zeros for values)."""

    number: int  # counted over all optimizers, from 0
    optimizer: int
    layout: Layout
    learning_rates: tuple[float, ...]  # one for each parameter group
    losses: tuple[float, ...]  # what backward was called on since the step before
    rows: tuple[
        tuple[int, ...], ...
    ]  # of each wrapped forward since then: rows of each replica (ddp: of this rank)
    gradients: Vector  # just before the step: unscaled and clipped
    parameters: Vector  # just after it


@dataclass(frozen=True)
class End:
    """What was known when the script ended."""

    steps: int
    losses: tuple[float, ...]  # after the last step
    rows: tuple[tuple[int, ...], ...]
    stopped: bool  # ended by --steps
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trace:
    """What one rank (or the one process of DataParallel) did; steps are read from disk one at a time."""

    folder: Path
    rank: int

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        return tuple(_layout(line) for line in _lines(self.folder / "layouts.jsonl"))

    @cached_property
    def lines(self) -> tuple[dict[str, Any], ...]:
        return tuple(_lines(self.folder / "steps.jsonl"))

    def __len__(self) -> int:
        return len(self.lines)

    @cached_property
    def end(self) -> End | None:
        path = self.folder / "end.json"
        if not path.exists():
            return None
        fields = json.loads(path.read_text(encoding="utf-8"))
        return End(**{**fields, "losses": tuple(fields["losses"]), "rows": _nested(fields["rows"]),
                      "remarks": tuple(fields["remarks"])})  # fmt: skip

    def steps(self) -> Iterator[Step]:
        block: tuple[int, dict[str, Any]] = (-1, {})
        for line in self.lines:
            if block[0] != line["block"]:
                block = (line["block"], _load(self.folder / f"block-{line['block']:05d}.safetensors"))
            yield _step(line, block[1], self.layouts[line["layout"]])

    def buffers(self) -> dict[str, npt.NDArray[Any]]:
        path = self.folder / "buffers.safetensors"
        return _load(path) if path.exists() else {}


def read_trace(folder: Path, rank: int) -> Trace:
    """The record that a rank left in a trace folder."""
    place = rank_folder(folder, rank)
    if not place.is_dir():
        raise TraceError(f"{place}: rank {rank} left no record; did the script start at all?")
    return Trace(place, rank)


def rank_folder(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}"


def sketch(values: Floats) -> npt.NDArray[np.float64]:
    """The norm, the largest magnitude, and projections onto fixed vectors of +-1 (the same prefix for each size).

    For a difference d the projections differ by s.d, and E[(s.d)^2] = |d|^2: two sketches tell how far apart
    two tensors are without keeping either.
    """
    exact = np.asarray(values, dtype=np.float64)
    largest = float(np.abs(exact).max()) if exact.size else 0.0
    return np.array([np.linalg.norm(exact), largest, *_projections(exact)])


def _projections(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """s.v for each s. For a long v, s is made of blocks: the same signs in each, times a sign for the block."""
    whole, rest = divmod(values.size, _BLOCK)
    found = np.zeros(PROJECTIONS)
    found += _signs(_BLOCK, 20)[:, :rest] @ values[whole * _BLOCK :]
    if whole:
        blocks = (
            _signs(_BLOCK, 20) @ values[: whole * _BLOCK].reshape(whole, _BLOCK).T
        )  # (projections, blocks)
        found += (blocks * _signs(whole, 21)).sum(axis=1)
    return found


@lru_cache(maxsize=64)
def _signs(size: int, seed: int) -> npt.NDArray[np.float64]:
    generator = np.random.Generator(np.random.PCG64(seed))
    return np.where(generator.integers(0, 2, size=(PROJECTIONS, size)), 1.0, -1.0)


def bits_hash(data: bytes | memoryview) -> int:
    """64 bits that change when any bit does; never 0, which stands for None."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") or 1


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    complete = text[: text.rfind("\n") + 1]  # a killed process may leave half a line
    return [json.loads(line) for line in complete.splitlines()]


def _load(path: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return load_file(path)


def _layout(line: dict[str, Any]) -> Layout:
    return Layout(
        tuple(line["names"]), tuple(tuple(shape) for shape in line["shapes"]), tuple(line["dtypes"])
    )


def _nested(rows: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each) for each in rows)


def _step(line: dict[str, Any], block: dict[str, Any], layout: Layout) -> Step:
    key = str(line["step"])
    return Step(
        number=line["step"],
        optimizer=line["optimizer"],
        layout=layout,
        learning_rates=tuple(line["learning_rates"]),
        losses=tuple(line["losses"]),
        rows=_nested(line["rows"]),
        gradients=_vector(block, key + ".gradients"),
        parameters=_vector(block, key + ".parameters"),
    )


def _vector(block: dict[str, Any], key: str) -> Vector:
    return Vector(block[key + ".hashes"], block.get(key + ".values"), block.get(key + ".sketch"))
