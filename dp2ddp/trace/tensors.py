"""Tensors of the script, as a record holds them: read where they lie, never changed and never kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dp2ddp.trace import digests
from dp2ddp.trace.digests import FOLD, SKETCH, Doubles, Floats, bits_hash
from dp2ddp.trace.records import Layout, Vector

Tensors = Sequence[torch.Tensor | None]
_EXACT = (torch.float32, torch.float64)
_UNWRITTEN = (torch.bfloat16,)  # numpy has no such type


def vector_of(tensors: Tensors, layout: Layout, *, whole: bool, sketched: bool = True) -> Vector:
    """Hashes of all; the values, if the whole is wanted; else sketches, if they are."""
    flat = [None if tensor is None else flat_of(tensor) for tensor in tensors]
    hashes = np.array([0 if each is None else _hash(each) for each in flat], dtype=np.uint64)
    if whole:
        return Vector(hashes, _values(flat, layout), None, layout)
    return Vector(hashes, None, _sketches(flat) if sketched else None, layout)


def layout_of(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> Layout:
    return Layout(
        names=tuple(names),
        shapes=tuple(tuple(tensor.shape) for tensor in tensors),
        dtypes=tuple(str(tensor.dtype).removeprefix("torch.") for tensor in tensors),
    )


def bytes_of(tensors: Tensors) -> int:
    return sum(tensor.numel() * max(tensor.element_size(), 4) for tensor in tensors if tensor is not None)


def as_array(tensor: torch.Tensor) -> Any:
    numbers = tensor.detach().cpu()
    return (numbers.double() if numbers.dtype == torch.bfloat16 else numbers).contiguous().numpy().copy()


def flat_of(tensor: torch.Tensor) -> torch.Tensor:
    """Its elements in order, on the CPU; memory of the script's where that is possible."""
    dense = tensor.detach() if tensor.layout == torch.strided else tensor.detach().to_dense()
    real = torch.view_as_real(dense) if dense.is_complex() else dense
    return real.contiguous().view(-1).cpu()


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """Its elements in order, as they lie in memory."""
    return _memory(flat_of(tensor))


def _hash(flat: torch.Tensor) -> int:
    return bits_hash(_memory(flat)) if flat.numel() else 1


def _memory(flat: torch.Tensor) -> memoryview:
    written = flat.view(torch.int16) if flat.dtype in _UNWRITTEN else flat
    return written.numpy().view(np.uint8).data


def _values(flat: Sequence[torch.Tensor | None], layout: Layout) -> Floats:
    """One behind the other; zeros for None."""
    parts = [
        _exact(each).numpy() if each is not None else np.zeros(_size(layout, place), dtype=np.float32)
        for place, each in enumerate(flat)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _size(layout: Layout, place: int) -> int:
    return layout.sizes[place] * (2 if layout.dtypes[place].startswith("complex") else 1)


def _exact(flat: torch.Tensor) -> torch.Tensor:
    return flat if flat.dtype in _EXACT else flat.double()


def _sketches(flat: Sequence[torch.Tensor | None]) -> Doubles:
    """As digests.sketch has them; short tensors all at once."""
    found = np.zeros((len(flat), SKETCH))
    short = [place for place, each in enumerate(flat) if each is not None and 0 < each.numel() <= FOLD]
    if short:
        tensors = [each for place in short if (each := flat[place]) is not None]
        together = torch.cat([each.double() for each in tensors]).numpy()
        found[short] = digests.sketch_all(together, tuple(each.numel() for each in tensors))
    for place, each in enumerate(flat):
        if each is not None and each.numel() > FOLD:
            found[place] = _sketch(_exact(each))
    return found


def _sketch(exact: torch.Tensor) -> Doubles:
    rows, rest = divmod(exact.numel(), FOLD)
    sign = torch.from_numpy(digests.row_signs(rows + 1, str(exact.dtype).removeprefix("torch.")))
    whole, tail = exact[: rows * FOLD].view(rows, FOLD), exact[rows * FOLD :]
    folded = torch.mv(whole.t(), sign[:rows])
    folded[:rest].add_(tail, alpha=float(sign[rows]))
    projected = torch.mv(torch.from_numpy(digests.signs()), folded.double())
    return np.array([_norm(whole, tail), *projected.tolist()])


def _norm(whole: torch.Tensor, tail: torch.Tensor) -> float:
    """Row by row in the tensor's own precision; in double, which is slow, where the squares have left its range."""
    norms = torch.cat([torch.linalg.vector_norm(whole, dim=1), torch.linalg.vector_norm(tail).view(1)])
    norm = float(torch.linalg.vector_norm(norms.double()).item())
    if 1e-15 < norm < 1e15:
        return norm
    exact = torch.cat([whole.reshape(-1), tail])
    return float(torch.linalg.vector_norm(exact, dtype=torch.float64).item())
