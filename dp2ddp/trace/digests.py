"""Short numbers that stand for tensors: a hash that changes with any bit, a sketch that tells how far apart two are."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

Floats = npt.NDArray[np.floating[Any]]
PROJECTIONS = 4
_BLOCK = 1 << 14


def bits_hash(data: bytes | memoryview) -> int:
    """64 bits that change when any bit does; never 0, which stands for None."""
    return xxhash.xxh3_64_intdigest(data) or 1


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
