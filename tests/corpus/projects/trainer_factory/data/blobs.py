import torch
from torch.utils.data import Dataset


class Blobs(Dataset):
    """Four kinds of noisy 6x6 pictures."""

    def __init__(self, split):
        g = torch.Generator().manual_seed(0 if split == 'train' else 1)
        centers = torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(7))
        n = 57 if split == 'train' else 22
        self.targets = torch.randint(0, 4, (n,), generator=g)
        self.images = centers[self.targets] + torch.randn(n, 1, 6, 6, generator=g)

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.images[index], self.targets[index]
