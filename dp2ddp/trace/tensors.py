"""Tensors of the script, as a record holds them: read where they lie, never changed and never kept.

Hash and sketch of a long one are made in one pass over its memory: three would take longer than the work itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import xxhash

from dp2ddp.trace import digests
from dp2ddp.trace.digests import FOLD, SKETCH, Doubles, Floats, bits_hash
from dp2ddp.trace.records import Layout, Vector

EXACT = (torch.float32, torch.float64)
_ROWS = 64  # in a block, which stays in the processor's cache


def measure(flat: torch.Tensor) -> tuple[int, Doubles]:
    """The hash and the sketch of more than FOLD numbers in a precision of EXACT, as digests.py has them."""
    rows, rest = divmod(flat.numel(), FOLD)
    signs = torch.from_numpy(digests.row_signs(rows + 1, str(flat.dtype).removeprefix("torch.")))
    hashed, norms, folded = xxhash.xxh3_64(), torch.zeros(rows + 1, dtype=flat.dtype), flat.new_zeros(FOLD)
    for start in range(0, rows, _ROWS):
        end = min(start + _ROWS, rows)
        block = flat[start * FOLD : end * FOLD].view(-1, FOLD)
        hashed.update(block.numpy().data)
        torch.linalg.vector_norm(block, dim=1, out=norms[start:end])
        folded.addmv_(block.t(), signs[start:end])
    tail = flat[rows * FOLD :]
    hashed.update(tail.numpy().data)
    norms[rows] = torch.linalg.vector_norm(tail)
    folded[:rest].add_(tail, alpha=float(signs[rows]))
    projected = torch.mv(torch.from_numpy(digests.signs()), folded.double())
    return hashed.intdigest() or 1, np.array([_norm(norms, flat), *projected.tolist()])


def _norm(norms: torch.Tensor, flat: torch.Tensor) -> float:
    """From the norms of rows; in double, which is slow, where the squares have left the precision's range."""
    norm = float(torch.linalg.vector_norm(norms.double()).item())
    if 1e-15 < norm < 1e15:
        return norm
    return float(torch.linalg.vector_norm(flat, dtype=torch.float64).item())


Tensors = Sequence[torch.Tensor | None]
Hashes = npt.NDArray[np.uint64]
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
    return whole.as_strided(
        (whole.numel(),), (1,)
    ).cpu()  # one element may have any stride, `column[:, 0]` of one row


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """Its elements in order, as they lie in memory."""
    return _memory(flat_of(tensor))


def _hash(flat: torch.Tensor) -> int:
    return bits_hash(_memory(flat)) if flat.numel() else 1


def _memory(flat: torch.Tensor) -> memoryview:
    return flat.view(torch.uint8).numpy().data


def _values(flat: Sequence[torch.Tensor | None], layout: Layout) -> Floats:
    """One behind the other; zeros for None."""
    parts = [
        np.zeros(layout.sizes[place], dtype=np.float32)
        if each is None
        else (each if each.dtype in EXACT else each.double()).numpy()
        for place, each in enumerate(flat)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


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
