import torch
import torch.nn as nn


class CenterLoss(nn.Module):
    def __init__(self, num_classes, dim):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(num_classes, dim))

    def forward(self, feat, target):
        distance = (feat - self.centers[target]).pow(2).sum(1)
        return distance.clamp(1e-12, 1e12).mean()
