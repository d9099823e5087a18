import numpy as np
import torch
import torch.nn as nn

from .registry import NETS


@NETS('StochasticDepth')
class StochasticDepth(nn.Module):
    def __init__(self, drop, depth=3):
        super().__init__()
        self.drop = drop
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(depth)])
        self.fc = nn.Linear(6, 3)
        self.register_buffer('drawn', torch.zeros(()))

    def forward(self, x):
        for layer in self.layers:
            if not self.training or np.random.rand() > self.drop:
                x = x + layer(x).tanh()
                self.drawn += 1
        return self.fc(x)
