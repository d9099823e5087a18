import torch
from torch.utils.data import DataLoader, Dataset


class Boxes(Dataset):
    def __init__(self, samples):
        g = torch.Generator().manual_seed(11)
        self.label = torch.randint(0, 3, (samples,), generator=g)
        self.box = torch.rand(samples, 4, generator=g)
        self.img = torch.randn(samples, 1, 8, 8, generator=g) + self.label.view(-1, 1, 1, 1)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.img[i], {'label': self.label[i], 'box': self.box[i]}


def build_dataloader(cfg):
    return DataLoader(Boxes(cfg['samples']), batch_size=cfg['per_batch'], shuffle=True)
