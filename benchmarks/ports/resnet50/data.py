"""Made-up images in memory: nothing but the training is timed."""

import torch
from torch.utils.data import TensorDataset


def made_up_images(length, size, classes=1000):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(length, 3, size, size, generator=generator)
    return TensorDataset(images, torch.randint(0, classes, (length,), generator=generator))
