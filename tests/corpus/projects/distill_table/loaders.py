import torch
from torch.utils.data import DataLoader, Subset, TensorDataset


def get_dataloaders(batch_size=9):
    g = torch.Generator().manual_seed(6)
    target = torch.randint(0, 4, (40,), generator=g)
    image = torch.randn(40, 1, 5, 5, generator=g) + target.view(-1, 1, 1, 1)
    data = TensorDataset(image, target)
    return {'train': DataLoader(Subset(data, range(32)), batch_size=batch_size, shuffle=True),
            'val': DataLoader(Subset(data, range(32, 40)), batch_size=batch_size)}
