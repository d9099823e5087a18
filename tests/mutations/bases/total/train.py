"""A loss that is a sum; gradients carry on from an unfrozen layer; the model is saved each epoch."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(14)
inputs, targets = torch.randn(30, 5), torch.randn(30, 1)
net = nn.Sequential(nn.Linear(5, 10), nn.Tanh(), nn.Linear(10, 1))
net[0].requires_grad_(False)
net = nn.DataParallel(net.cuda())
optimizer = torch.optim.Adagrad(net.parameters(), lr=0.05)

for step in range(6):
    if step == 3:
        net.module[0].requires_grad_(True)
    rows = torch.arange(5 * step, 5 * step + 5)
    loss = F.mse_loss(net(inputs[rows].cuda()), targets[rows].cuda(), reduction="sum")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.save(net.module.state_dict(), f"step{step % 2}.pt")
