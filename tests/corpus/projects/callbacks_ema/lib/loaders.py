import torch
from torch.utils.data import DataLoader, TensorDataset


def make_loaders(batch):
    g = torch.Generator().manual_seed(1)
    loaders = {}
    for phase, n in (('train', 30), ('valid', 11)):
        x = torch.randn(n, 5, generator=g)
        loaders[phase] = DataLoader(TensorDataset(x, x.sin().sum(1, keepdim=True)), batch, shuffle=phase == 'train')
    return loaders
