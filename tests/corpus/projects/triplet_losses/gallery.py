import random
from collections import defaultdict

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.sampler import Sampler


class Gallery(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(3)
        self.pids = [i % 9 for i in range(50)]
        self.images = torch.randn(9, 10, generator=g)[self.pids] + 0.4 * torch.randn(50, 10, generator=g)

    def __getitem__(self, index):
        return self.images[index], self.pids[index]

    def __len__(self):
        return len(self.pids)


class RandomIdentitySampler(Sampler):
    def __init__(self, pids, p, k):
        self.index = defaultdict(list)
        for i, pid in enumerate(pids):
            self.index[pid].append(i)
        self.p, self.k = p, k

    def __iter__(self):
        pids = random.sample(sorted(self.index), len(self.index))
        return iter([i for pid in pids for i in random.sample(self.index[pid], self.k)])

    def __len__(self):
        return len(self.index) * self.k


def make_loader(p, k):
    data = Gallery()
    loader = DataLoader(data, batch_size=p * k, sampler=RandomIdentitySampler(data.pids, p, k))
    return loader, sorted(set(data.pids))
