import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def loaders(config, rank, world_size):
    data = TensorDataset(torch.rand(100, 3, 32, 32), torch.randint(0, 2, (100, 32, 32)))
    sampler = DistributedSampler(data, world_size, rank, shuffle=True)
    train = DataLoader(data, batch_size=16 // world_size, sampler=sampler, pin_memory=True)
    return train, DataLoader(data, batch_size=16), sampler
