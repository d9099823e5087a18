"""Hash and sketch of a long tensor in one pass over its memory: three would take longer than the work itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import xxhash

from dp2ddp.trace import digests
from dp2ddp.trace.digests import FOLD, Doubles

EXACT = (torch.float32, torch.float64)
_ROWS = 64  # in a block, which stays in the processor's cache


def measure(flat: torch.Tensor) -> tuple[int, Doubles]:
    """The hash and the sketch of more than FOLD numbers in a precision of EXACT, as digests.py has them."""
    rows, rest = divmod(flat.numel(), FOLD)
    signs = torch.from_numpy(digests.row_signs(rows + 1, str(flat.dtype).removeprefix("torch.")))
    hashed, norms, folded = xxhash.xxh3_64(), torch.zeros(rows + 1, dtype=flat.dtype), flat.new_zeros(FOLD)
    for start, block in _blocks(flat[: rows * FOLD].view(rows, FOLD)):
        end = start + block.shape[0]
        hashed.update(block.numpy().data)
        torch.linalg.vector_norm(block, dim=1, out=norms[start:end])
        folded.addmv_(block.t(), signs[start:end])
    tail = flat[rows * FOLD :]
    hashed.update(tail.numpy().data)
    norms[rows] = torch.linalg.vector_norm(tail)
    folded[:rest].add_(tail, alpha=float(signs[rows]))
    projected = torch.mv(torch.from_numpy(digests.signs()), folded.double())
    return hashed.intdigest() or 1, np.array([_norm(norms, flat), *projected.tolist()])


def _blocks(rows: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    for start in range(0, rows.shape[0], _ROWS):
        yield start, rows[start : start + _ROWS]


def _norm(norms: torch.Tensor, flat: torch.Tensor) -> float:
    """From the norms of rows; in double, which is slow, where the squares have left the precision's range."""
    norm = float(torch.linalg.vector_norm(norms.double()).item())
    if 1e-15 < norm < 1e15:
        return norm
    return float(torch.linalg.vector_norm(flat, dtype=torch.float64).item())
