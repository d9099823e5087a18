import torch
from torch.utils.data import DataLoader, Dataset

from . import config


class Shapes(Dataset):
    def __init__(self, split):
        g = torch.Generator().manual_seed(21 + len(split))
        n = 26 if split == 'train' else 9
        self.masks = torch.randint(0, config.CLASSES, (n, 4, 4), generator=g).repeat_interleave(2, 1).repeat_interleave(2, 2)
        self.images = self.masks[:, None].float() + 0.3 * torch.randn(n, 1, 8, 8, generator=g)
        self.masks[torch.rand(n, 8, 8, generator=g) < torch.linspace(0, 0.6, n)[:, None, None]] = config.IGNORE

    def __getitem__(self, index):
        return self.images[index], self.masks[index]

    def __len__(self):
        return len(self.images)


def get_loader(split):
    training = split == 'train'
    return DataLoader(Shapes(split), batch_size=6, shuffle=training, drop_last=training)
