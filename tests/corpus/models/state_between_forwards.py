# corpus: idioms = nn.DataParallel; module level, bare; buffer or counter written in forward; batch statistics in forward other than BN (minibatch stddev, global memory bank)
# corpus: worlds = 2 3
"""What one replica's forward leaves for the next: a counter, a schedule, settings, averages that are no buffers."""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Schedule:
    """The part of the noise that is left after so many calls."""

    def __init__(self, calls):
        self.calls, self.done = calls, 0

    def step(self):
        self.done += 1
        return max(0.0, 1 - self.done / self.calls) * random.random()


class Encoder(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.fc = nn.Linear(6, 12)
        self.noise = Schedule(40)
        self.state = {"forwards": 0}
        self.mean = torch.zeros(12)
        self.usage = np.zeros(12)
        self.cache = {}

    def positions(self, n, device):
        if (n, device) not in self.cache:
            self.cache[n, device] = torch.linspace(0, 1, n, device=device)
        return self.cache[n, device]

    def forward(self, x):
        h = F.relu(self.fc(x)) + self.positions(12, x.device)
        if self.training:
            self.state["forwards"] += 1
            self.args.temperature = max(0.5, 0.98 * self.args.temperature)
            self.mean.mul_(0.9).add_(h.detach().mean(0).cpu(), alpha=0.1)
            self.usage += (h > 0.5).float().sum(0).cpu().numpy()
            h = h + 0.1 * self.noise.step()
        warm = min(1.0, 0.5 + self.state["forwards"] / 30)
        rare = torch.from_numpy(self.usage / (1 + self.usage.sum())).to(h)
        return warm * (h - self.mean.to(h)) / self.args.temperature - rare


parser = argparse.ArgumentParser()
parser.add_argument("--temperature", type=float, default=1.0)
args = parser.parse_args()

random.seed(0)
torch.manual_seed(0)
x = torch.randn(44, 6)
loader = DataLoader(TensorDataset(x, (x[:, 0] > x[:, 1]).long()), batch_size=8, shuffle=True)
model = nn.DataParallel(nn.Sequential(Encoder(args), nn.Linear(12, 2)).cuda())
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(3):
    model.train()
    for x, y in loader:
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(x.cuda()).argmax(1).cpu() == y).sum().item() for x, y in loader)
    print(epoch, right, round(args.temperature, 6))
