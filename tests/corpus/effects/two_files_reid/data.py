import random

import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class Vehicles(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(2)
        self.ids = [i // 5 for i in range(45)]
        center = torch.randn(9, 6, generator=g)
        self.x = center[self.ids] + 0.3 * torch.randn(45, 6, generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.x[i], self.ids[i]


class PK(Sampler):
    """P identities, K images of each."""

    def __init__(self, ids, p=4, k=3):
        self.ids, self.p, self.k = ids, p, k

    def __iter__(self):
        names = sorted(set(self.ids))
        random.Random(len(names)).shuffle(names)
        for i in range(0, len(names), self.p):
            batch = []
            for name in names[i:i + self.p]:
                rows = [j for j, n in enumerate(self.ids) if n == name]
                batch += random.sample(rows, self.k)
            yield batch

    def __len__(self):
        return -(-len(set(self.ids)) // self.p)


def get_loader():
    data = Vehicles()
    return DataLoader(data, batch_sampler=PK(data.ids))
