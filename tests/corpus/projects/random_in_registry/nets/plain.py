import torch.nn as nn

from .registry import NETS


@NETS('Plain')
class Plain(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
