"""A tagger whose loss is a mean over the words that are not padding."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(6)
words = torch.randint(1, 20, (30, 7))
lengths = torch.randint(1, 8, (30,))
tags = words % 4
tags[torch.arange(7)[None, :] >= lengths[:, None]] = -100
loader = DataLoader(TensorDataset(words, tags), batch_size=8, shuffle=True)
net = nn.DataParallel(
    nn.Sequential(nn.Embedding(20, 10), nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 4)).cuda()
)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(), y.cuda()
        loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch}, step {step}: {loss.item():.6f}")
