import torch
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    def __init__(self, n, seed, scale=None):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 12, generator=g)
        self.y = (self.x[:, :3].sum(1) > 0).long()
        self.scale = scale

    def __len__(self):
        return len(self.y)

    def normalise(self, row):
        return (row - row.mean()) / (row.std() + 1e-5)

    def __getitem__(self, i):
        row = self.normalise(self.x[i])
        return row, self.y[i], 'signal_%d' % i


def stack(samples):
    xs, ys, names = zip(*samples)
    return torch.stack(xs, 0), torch.tensor([int(y) for y in ys])


def build_loaders(batch_size):
    train = DataLoader(Signals(54, 1), batch_size=batch_size, shuffle=True, collate_fn=stack)
    test = DataLoader(Signals(22, 2), batch_size=batch_size, collate_fn=stack)
    return train, test
