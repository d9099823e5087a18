"""Sketches tell how far apart two tensors are, and are the same whoever makes them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dp2ddp.trace.digests import sketch
from dp2ddp.trace.tensors import layout_of, vector_of

SIZES = [1, 7, 4095, 4096, 5000, 3 * 2**14 + 5]


@pytest.mark.parametrize("size", SIZES)
def test_a_sketch_tells_the_size_of_a_difference(size: int) -> None:
    generator = np.random.default_rng(size)
    a, d = generator.standard_normal(size), 1e-6 * generator.standard_normal(size)
    estimate = np.sqrt(np.mean((sketch(a + d)[1:] - sketch(a)[1:]) ** 2))
    assert 0.3 < estimate / np.linalg.norm(d) < 2.5  # eight projections: a rough number, not a verdict


def test_a_sketch_depends_on_the_values_alone_and_not_on_larger_tensors_seen_before() -> None:
    values = np.arange(9000.0)
    before = sketch(values)
    sketch(np.zeros(100_000))
    assert (sketch(values) == before).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sketches_of_tensors_are_those_of_their_values(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(size, dtype=dtype, generator=generator) for size in SIZES]
    layout = layout_of([str(size) for size in SIZES], tensors)
    quick = vector_of(tensors, layout, whole=False)
    exact = vector_of([tensor.double() for tensor in tensors], layout, whole=True).sketched(layout)
    assert quick.sketch is not None
    assert np.abs(quick.sketch - exact).max() <= 1e-6 * exact[:, 0].max()
    if dtype == torch.float64:
        assert np.abs(quick.sketch - exact).max() <= 1e-14 * exact[:, 0].max()


def test_norms_of_very_small_and_very_large_gradients() -> None:
    tensors = [torch.full((5000,), 1e-30), torch.full((5000,), 1e30), torch.full((3,), 1e-30)]
    layout = layout_of(["small", "large", "short"], tensors)
    sketches = vector_of(tensors, layout, whole=False).sketch
    expected = [1e-30 * 5000**0.5, 1e30 * 5000**0.5, 1e-30 * 3**0.5]
    assert np.allclose(sketches[:, 0] / expected, 1.0, rtol=1e-6)


def test_all_kinds_of_tensors_are_hashed_and_kept() -> None:
    tensors = [
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.float16),
        torch.ones(3, dtype=torch.complex64),
        torch.tensor([True, False]),
        torch.tensor(5),
        torch.ones(2, 3).t(),
        torch.ones(1, 6, dtype=torch.int64)[:, 0],  # one element, with a stride of 6
        torch.zeros(0),
        torch.eye(3).to_sparse(),
    ]
    layout = layout_of([str(place) for place in range(len(tensors))], tensors)
    vector = vector_of([*tensors[:-1], tensors[-1]], layout, whole=True)
    assert vector.hashes.all()
    assert vector.values.tolist() == [1.0] * 6 + [1, 0] * 3 + [1, 0] + [5] + [1] * 7 + [*np.eye(3).flatten()]
    quick = vector_of(tensors, layout, whole=False)
    assert (quick.hashes == vector.hashes).all()
