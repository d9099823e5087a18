import torch
import torch.nn as nn


class TwoTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.left, self.right = nn.Linear(dim, 5), nn.Linear(dim, 5)

    def forward(self, query, document):
        return self.left(query), self.right(document)
