import torch
from torch.utils.data import DataLoader, TensorDataset


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 12, generator=g)
    return TensorDataset(x, x[:, :3].argmax(1))


def get_loaders(batch):
    trainloader = DataLoader(make(46, 0), batch_size=batch, shuffle=True)
    testloader = DataLoader(make(17, 1), batch_size=batch, shuffle=False)
    return trainloader, testloader
