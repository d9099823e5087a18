import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.phase = torch.rand(n, 1, generator=g) * 6
        self.x = torch.sin(self.phase + torch.arange(8) / 3)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {'x': self.x[i], 'y': self.phase[i]}


def seed_worker(worker_id):
    np.random.seed(worker_id)
    random.seed(worker_id)


def build_loaders(args):
    train = DataLoader(Waves(29, 0), args.batch_size, shuffle=True, worker_init_fn=seed_worker)
    val = DataLoader(Waves(10, 1), args.batch_size)
    return dict(train=train, val=val)
