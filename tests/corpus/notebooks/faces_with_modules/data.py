import torch
from torch.utils.data import DataLoader, Dataset


class Faces(Dataset):
    def __init__(self, n):
        generator = torch.Generator().manual_seed(4)
        self.labels = torch.randint(0, 5, (n,), generator=generator)
        self.pixels = torch.randn(n, 10, generator=generator) + self.labels[:, None]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.pixels[index], self.labels[index]


def get_loader(n, batch_size):
    return DataLoader(Faces(n), batch_size=batch_size, shuffle=True)
