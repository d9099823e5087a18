"""An encoder with a projection, and the NT-Xent loss, which couples all rows of the batch."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, channels=32, width=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, channels, 3, 2, 1, bias=False),
            nn.GroupNorm(4, channels),
            nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, 2, 1, bias=False),
            nn.GroupNorm(4, 2 * channels),
            nn.ReLU(),
            nn.Conv2d(2 * channels, 4 * channels, 3, 2, 1, bias=False),
            nn.GroupNorm(4, 4 * channels),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.projection = nn.Sequential(
            nn.Linear(4 * channels, 4 * channels), nn.ReLU(), nn.Linear(4 * channels, width)
        )

    def forward(self, x):
        return self.projection(self.body(x))


def nt_xent(z1, z2, temperature=0.5):
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    n = z1.size(0)
    similarity = z @ z.t() / temperature
    similarity = similarity.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=z.device), float("-inf"))
    positives = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(z.device)
    return F.cross_entropy(similarity, positives)
