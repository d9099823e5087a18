"""Tensors of the script, as a record holds them: read where they lie, never changed and never kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dp2ddp.trace import digests
from dp2ddp.trace.blockwise import EXACT, measure
from dp2ddp.trace.digests import FOLD, SKETCH, Doubles, Floats, bits_hash
from dp2ddp.trace.records import Layout, Vector

Tensors = Sequence[torch.Tensor | None]
Hashes = npt.NDArray[np.uint64]
_UNWRITTEN = (torch.bfloat16,)  # numpy has no such type


def vector_of(tensors: Tensors, layout: Layout, *, whole: bool, sketched: bool = True) -> Vector:
    """Hashes of all; the values, if the whole is wanted; else sketches, if they are."""
    flat = [None if tensor is None else flat_of(tensor) for tensor in tensors]
    if sketched and not whole:
        hashes, sketches = _measured(flat)
        return Vector(hashes, None, sketches, layout)
    hashes = np.array([0 if each is None else _hash(each) for each in flat], dtype=np.uint64)
    return Vector(hashes, _values(flat, layout) if whole else None, None, layout)


def layout_of(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> Layout:
    """The layout of named tensors in a flat vector."""
    return Layout(
        names=tuple(names),
        shapes=tuple(tuple(tensor.shape) for tensor in tensors),
        dtypes=tuple(str(tensor.dtype).removeprefix("torch.") for tensor in tensors),
    )


def bytes_of(tensors: Tensors) -> int:
    """How many bytes the values of these tensors take in a record; half precision is kept as float32."""
    return sum(tensor.numel() * max(tensor.element_size(), 4) for tensor in tensors if tensor is not None)


def as_array(tensor: torch.Tensor) -> Any:
    """A copy of a tensor's values as a numpy array of its shape; bfloat16 becomes float64."""
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
        _exact(each).numpy() if each is not None else np.zeros(layout.sizes[place], dtype=np.float32)
        for place, each in enumerate(flat)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _exact(flat: torch.Tensor) -> torch.Tensor:
    return flat if flat.dtype in EXACT else flat.double()


def _measured(flat: Sequence[torch.Tensor | None]) -> tuple[Hashes, Doubles]:
    """Hashes, and sketches as digests.sketch has them."""
    hashes, sketches = np.zeros(len(flat), dtype=np.uint64), np.zeros((len(flat), SKETCH))
    short: dict[int, dict[int, torch.Tensor]] = {}  # by size, then by place
    for place, each in enumerate(flat):
        if each is not None and each.numel() > FOLD and each.dtype in EXACT:
            hashes[place], sketches[place] = measure(each)
        elif each is not None:
            hashes[place] = _hash(each)
            if 0 < each.numel() <= FOLD:
                short.setdefault(each.numel(), {})[place] = each
            elif each.numel():
                sketches[place] = measure(each.double())[1]
    for same_size in short.values():
        together = torch.stack([each.double() for each in same_size.values()])
        sketches[[*same_size]] = digests.sketch_all(together.numpy())
    return hashes, sketches
