import torch
from torch.utils.data import DataLoader, TensorDataset


def make_loader():
    g = torch.Generator().manual_seed(5)
    x = torch.randn(25, 6, generator=g)
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=7, shuffle=True)
