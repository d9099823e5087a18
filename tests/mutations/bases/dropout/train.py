"""Dropout: replicas draw from their devices' streams."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(9)
inputs, targets = torch.randn(32, 6), torch.randn(32, 2)
net = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Dropout(0.4), nn.Linear(20, 2))
net = nn.DataParallel(net.cuda())
optimizer = torch.optim.RMSprop(net.parameters(), lr=2e-3)

for step in range(6):
    rows = torch.arange(step * 4, step * 4 + 6) % 32
    net.train()
    loss = F.mse_loss(net(inputs[rows].cuda()), targets[rows].cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
net.eval()
with torch.no_grad():
    print(f"{F.mse_loss(net(inputs.cuda()), targets.cuda()).item():.6f}")
