"""Pairs of views of made-up images; the views are fixed, so that runs can be compared."""

import torch
from torch.utils.data import TensorDataset


def pairs(length, size=32):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(length, 3, size, size, generator=generator)
    views = [images + 0.5 * torch.randn(images.shape, generator=generator) for _ in range(2)]
    return TensorDataset(*views)
