import torch
import torch.nn as nn


class LabelSmoothing(nn.Module):
    def __init__(self, size, padding_idx, smoothing):
        super().__init__()
        self.padding_idx, self.confidence, self.smoothing, self.size = padding_idx, 1 - smoothing, smoothing, size

    def forward(self, x, target):
        true_dist = torch.full_like(x, self.smoothing / (self.size - 2))
        true_dist.scatter_(1, target.unsqueeze(1), self.confidence)
        true_dist[:, self.padding_idx] = 0
        true_dist = true_dist * (target != self.padding_idx).unsqueeze(1)
        loss = -(true_dist * x).sum()
        return loss.unsqueeze(0)
