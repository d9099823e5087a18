# Gradients by torch.autograd.grad (an influence function's first half): nothing steps.
import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(26, 8), torch.randint(0, 3, (26,))
net = nn.DataParallel(nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)).cuda())
for start in range(0, 26, 8):
    loss = nn.functional.cross_entropy(net(x[start : start + 8].cuda()), y[start : start + 8].cuda())
    gradients = torch.autograd.grad(loss, list(net.parameters()))
