# corpus: idioms = nn.DataParallel; method parallelize()/multi_gpu()/set_device() does the wrap later
# corpus: answer = 1 DDP101:16
"""A module of a library: it wraps if somebody asks it to, and nothing runs when it is started."""
import torch.nn as nn


class Trainable(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 2)

    def forward(self, x):
        return self.body(x)

    def parallelize(self):
        self.body = nn.DataParallel(self.body)
        return self
