"""Tensors of the script, as a record holds them: read where they lie, never changed and never kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dp2ddp.trace.digests import FOLD, SKETCH, Doubles, Floats, bits_hash, measured, sketch_all
from dp2ddp.trace.records import Layout, Vector

Tensors = Sequence[torch.Tensor | None]
Hashes = npt.NDArray[np.uint64]
EXACT = (torch.float32, torch.float64)
_OF_NUMPY = (torch.float16, torch.float32, torch.float64)  # it has no other floats


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


def laid_out(named: Iterable[tuple[str, torch.Tensor]]) -> tuple[Layout, list[torch.Tensor]]:
    """Named tensors one behind the other, and their layout."""
    pairs = list(named)
    tensors = [tensor for _, tensor in pairs]
    return layout_of([name for name, _ in pairs], tensors), tensors


def bytes_of(tensors: Tensors) -> int:
    """How many bytes the values of these tensors take in a record; half precision is kept as float32."""
    return sum(tensor.numel() * max(tensor.element_size(), 4) for tensor in tensors if tensor is not None)


def as_array(tensor: torch.Tensor) -> Any:
    """A copy of a tensor's values as a numpy array of its shape.

    Floats that numpy does not have become float64; complex numbers pairs, in a dimension more: safetensors has no
    complex128.
    """
    numbers = as_real(tensor).cpu()
    unknown = numbers.is_floating_point() and numbers.dtype not in _OF_NUMPY
    return (numbers.double() if unknown else numbers).contiguous().numpy().copy()


def sum_of(tensor: torch.Tensor) -> float:
    """The sum of its numbers, of complex ones of both parts."""
    return float(flat_of(tensor).double().sum())


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers, dense; complex ones as pairs, in a dimension more. The script's memory, where possible."""
    dense = tensor.detach() if tensor.layout == torch.strided else tensor.detach().to_dense()
    # x.conj() and x.conj().imag are views that note what is to be done
    plain = dense.resolve_conj().resolve_neg()
    return torch.view_as_real(plain) if plain.is_complex() else plain


def as_kind_of(tensor: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """What `as_real` made of a tensor of this kind, turned back."""
    return torch.view_as_complex(real) if tensor.is_complex() else real


def flat_of(tensor: torch.Tensor) -> torch.Tensor:
    """Its elements in order, on the CPU; memory of the script's where that is possible."""
    whole = as_real(tensor).contiguous()
    # one element may have any stride, `column[:, 0]` of one row
    return whole.as_strided((whole.numel(),), (1,)).cpu()


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """Its elements in order, as they lie in memory."""
    return _memory(flat_of(tensor))


def _hash(flat: torch.Tensor) -> int:
    return bits_hash(_memory(flat)) if flat.numel() else 1


def _memory(flat: torch.Tensor) -> memoryview:
    return flat.view(torch.uint8).numpy().data


def _exact(flat: torch.Tensor) -> Floats:
    values: Floats = (flat if flat.dtype in EXACT else flat.double()).numpy()
    return values


def _values(flat: Sequence[torch.Tensor | None], layout: Layout) -> Floats:
    """One behind the other; zeros for None."""
    parts = [
        np.zeros(size, dtype=np.float32) if each is None else _exact(each)
        for size, each in zip(layout.sizes, flat, strict=True)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _measured(flat: Sequence[torch.Tensor | None]) -> tuple[Hashes, Doubles]:
    """Hashes, and sketches as digests.sketch has them."""
    hashes, sketches = np.zeros(len(flat), dtype=np.uint64), np.zeros((len(flat), SKETCH))
    short: dict[int, dict[int, torch.Tensor]] = {}  # by size, then by place
    for place, each in enumerate(flat):
        if each is None:
            continue
        if each.numel() > FOLD:
            hashes[place], sketches[place] = measured(_exact(each))
        if each.numel() <= FOLD or each.dtype not in EXACT:
            hashes[place] = _hash(each)
        if 0 < each.numel() <= FOLD:
            short.setdefault(each.numel(), {})[place] = each
    for same_size in short.values():
        together = torch.stack([each.double() for each in same_size.values()])
        sketches[[*same_size]] = sketch_all(together.numpy())
    return hashes, sketches
