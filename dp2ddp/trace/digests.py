"""Short numbers that stand for tensors: a hash that changes with any bit, a sketch that tells how far apart two are.

No torch in here; tensors.py has the same for tensors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

Floats = npt.NDArray[np.floating[Any]]
Doubles = npt.NDArray[np.float64]
EXACT = (np.float32, np.float64)
PROJECTIONS = 8
FOLD = 1 << 12  # elements of a long vector are added up in rows of this size before they are projected
SKETCH = 1 + PROJECTIONS  # the norm, then the projections
_ROWS = 16  # in a block, which stays in the processor's cache


def bits_hash(data: Any) -> int:
    """64 bits that change when any bit of a buffer does; never 0, which stands for None."""
    return xxhash.xxh3_64_intdigest(data) or 1


def sketch(values: Floats) -> Doubles:
    """The norm, and projections onto fixed vectors of +-1 (the same prefix for each size).

    For a difference d the projections differ by s.d, and E[(s.d)^2] = |d|^2: two sketches tell how far apart
    two tensors are without keeping either. A long v is folded first: s is the product of a sign for the row
    and a sign for the place in the row. Folding is done in the values' own precision, in which they are compared.
    """
    return measured(values if values.dtype in EXACT else values.astype(np.float64))[1]


def measured(values: Floats) -> tuple[int, Doubles]:
    """The hash and the sketch of numbers in a precision of EXACT: in one pass, as three take longer than the work."""
    rows, rest = divmod(values.size, FOLD) if values.size > FOLD else (0, values.size)
    signs = row_signs(rows + 1, values.dtype.name)
    hashed, square, folded = xxhash.xxh3_64(), 0.0, np.zeros(FOLD if rows else rest, values.dtype)
    with np.errstate(all="ignore"):  # of a run that went to inf or nan the sketch is nan
        for start in range(0, rows, _ROWS):
            end = min(start + _ROWS, rows)
            block = values[start * FOLD : end * FOLD]
            hashed.update(block.data)
            square += float(block @ block)
            folded += signs[start:end] @ block.reshape(-1, FOLD)
        tail = values[rows * FOLD :]
        hashed.update(tail.data)
        square += float(tail @ tail)
        folded[:rest] += signs[rows] * tail if rows else tail
        return hashed.intdigest() or 1, np.array(
            [_norm(square, values), *_projected(folded.astype(np.float64))]
        )


def _norm(square: float, values: Floats) -> float:
    """In double, which is slow, where the squares have left the precision's range."""
    return square**0.5 if 1e-30 < square < 1e30 else float(np.linalg.norm(values.astype(np.float64)))


def sketch_all(values: Doubles) -> Doubles:
    """The sketches of many short tensors of one size, (tensors, numbers of each)."""
    with np.errstate(all="ignore"):
        return np.hstack([np.linalg.norm(values, axis=1, keepdims=True), _projected(values.T).T])


def _projected(folded: Doubles) -> Doubles:
    projected: Doubles = _place_signs()[:, : len(folded)] @ folded
    return projected


@lru_cache(maxsize=1)
def _place_signs() -> Doubles:
    """(projections, places in a row)"""
    return _random_signs(20, (PROJECTIONS, FOLD))


@lru_cache(maxsize=64)
def row_signs(rows: int, dtype: str) -> Floats:
    """Fixed signs, (rows,) of +-1."""
    return _random_signs(21, (rows,)).astype(dtype)


def _random_signs(seed: int, shape: tuple[int, ...]) -> Doubles:
    generator = np.random.Generator(np.random.PCG64(seed))
    return np.where(generator.integers(0, 2, size=shape), 1.0, -1.0)
