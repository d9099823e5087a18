import random

import torch
import torch.utils.data


class UnalignedDataset(torch.utils.data.Dataset):
    def __init__(self, n=23):
        g = torch.Generator().manual_seed(4)
        self.A = torch.rand(n, 1, 8, 8, generator=g)
        self.B = torch.rand(n, 1, 8, 8, generator=g) * 2 - 1

    def __getitem__(self, index):
        return {'A': self.A[index], 'B': self.B[random.randint(0, len(self.B) - 1)]}

    def __len__(self):
        return len(self.A)


def CreateDataLoader(opt):
    return CustomDatasetDataLoader(opt)


class CustomDatasetDataLoader():
    def __init__(self, opt):
        self.dataset = UnalignedDataset()
        self.dataloader = torch.utils.data.DataLoader(self.dataset, batch_size=opt.batchSize, shuffle=True)

    def load_data(self):
        return self

    def __len__(self):
        return len(self.dataset)

    def __iter__(self):
        for data in self.dataloader:
            yield data
