"""Trains a line, and writes in every way that scripts write."""

import sys

import torch
import torch.nn as nn

from ways import write

torch.manual_seed(0)
net = nn.DataParallel(nn.Linear(4, 1).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(8, 4).cuda()
    optimizer.zero_grad()
    loss = net(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))
write(net.module, sys.argv[1:])
