import types

import torch
import torch.distributed as dist


class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 1)


class Numbers(torch.utils.data.TensorDataset):
    def __init__(self):
        super().__init__(torch.rand(64, 4), torch.rand(64, 1))


class Logger:
    def __init__(self):
        self.total = torch.zeros(2, device="cuda")

    def add(self, value):
        self.total += torch.tensor([value, 1.0], device="cuda")

    def mean(self):
        dist.all_reduce(self.total)
        value = (self.total[0] / self.total[1]).item()
        self.total.zero_()
        return value


def options():
    return types.SimpleNamespace(batch_size=8, lr=0.1)
