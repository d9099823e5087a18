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
PROJECTIONS = 8
FOLD = 1 << 12  # elements of a long vector are added up in rows of this size before they are projected
SKETCH = 1 + PROJECTIONS  # the norm, then the projections


def bits_hash(data: Any) -> int:
    """64 bits that change when any bit of a buffer does; never 0, which stands for None."""
    return xxhash.xxh3_64_intdigest(data) or 1


def sketch(values: Floats) -> Doubles:
    """The norm, and projections onto fixed vectors of +-1 (the same prefix for each size).

    For a difference d the projections differ by s.d, and E[(s.d)^2] = |d|^2: two sketches tell how far apart
    two tensors are without keeping either. A long v is folded first: s is the product of a sign for the row
    and a sign for the place in the row. Folding is done in the values' own precision, in which they are compared.
    """
    exact = values if values.dtype in (np.float32, np.float64) else np.asarray(values, dtype=np.float64)
    with np.errstate(all="ignore"):  # of a run that went to inf or nan the sketch is nan
        folded = _folded(exact).astype(np.float64)
        return np.array([np.linalg.norm(exact.astype(np.float64)), *signs()[:, : folded.size] @ folded])


def sketch_all(values: Doubles) -> Doubles:
    """The sketches of many short tensors of one size, (tensors, numbers of each)."""
    with np.errstate(all="ignore"):
        return np.hstack(
            [np.linalg.norm(values, axis=1, keepdims=True), values @ signs()[:, : values.shape[1]].T]
        )


def _folded(values: Floats) -> Floats:
    if values.size <= FOLD:
        return values
    rows, rest = divmod(values.size, FOLD)
    sign = row_signs(rows + 1, values.dtype.name)
    folded: Floats = sign[:rows] @ values[: rows * FOLD].reshape(rows, FOLD)
    folded[:rest] += sign[rows] * values[rows * FOLD :]
    return folded


@lru_cache(maxsize=1)
def signs() -> Doubles:
    """(projections, places in a row)"""
    return _random_signs(20, (PROJECTIONS, FOLD))


@lru_cache(maxsize=64)
def row_signs(rows: int, dtype: str) -> Floats:
    """Fixed signs, (rows,) of +-1."""
    return _random_signs(21, (rows,)).astype(dtype)


def _random_signs(seed: int, shape: tuple[int, ...]) -> Doubles:
    generator = np.random.Generator(np.random.PCG64(seed))
    return np.where(generator.integers(0, 2, size=shape), 1.0, -1.0)
