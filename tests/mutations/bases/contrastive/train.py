"""InfoNCE: each row of a batch is compared with all others."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(13)
first = torch.randn(32, 6)
second = first + 0.2 * torch.randn(32, 6)
net = nn.DataParallel(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 4)).cuda())
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)

for step in range(5):
    rows = torch.randperm(32)[:6]
    a, b = F.normalize(net(first[rows].cuda())), F.normalize(net(second[rows].cuda()))
    loss = F.cross_entropy(a @ b.T / 0.1, torch.arange(6).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.6f}")
