"""The data, for both modes: images that need no download. Put your own data set here."""

import torch
from torch import Tensor
from torch.utils.data import Dataset


class Patterns(Dataset[tuple[Tensor, Tensor]]):
    """Ten patterns of 3 x 16 x 16 under noise, and which of them it is."""

    def __init__(self, rows: int, seed: int) -> None:
        patterns = torch.randn(10, 3, 16, 16, generator=torch.Generator().manual_seed(0))
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(10, (rows,), generator=generator)
        self.images = patterns[self.labels] + torch.randn(rows, 3, 16, 16, generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]


def train_set() -> Patterns:
    """What is trained on."""
    return Patterns(500, seed=1)


def test_set() -> Patterns:
    """What is only evaluated on."""
    return Patterns(203, seed=2)
