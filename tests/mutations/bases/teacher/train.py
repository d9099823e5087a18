"""Samples drawn by weight, a centre of the outputs that is a buffer, an average of the weights, two parameter groups."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.manual_seed(11)
data = TensorDataset(torch.randn(32, 6), torch.randn(32, 4))
sampler = WeightedRandomSampler(torch.linspace(0.1, 2.0, 32) ** 3, 30)
loader = DataLoader(data, batch_size=8, sampler=sampler)


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.LayerNorm(12))
        self.head = nn.Linear(12, 4)
        self.register_buffer("center", torch.zeros(4))

    def forward(self, x):
        return self.head(self.body(x))


net = nn.DataParallel(Student().cuda())
average = copy.deepcopy(net.module)
groups = [{"params": net.module.body.parameters(), "lr": 2e-3}, {"params": net.module.head.parameters()}]
optimizer = torch.optim.Adam(groups, lr=1e-2)

for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        out = net(x)
        loss = (out - net.module.center - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            mean = out.mean(0)
            net.module.center.mul_(0.9).add_(mean, alpha=0.1)
            for old, new in zip(average.parameters(), net.module.parameters()):
                old.mul_(0.9).add_(new, alpha=0.1)
print("done")
torch.save({"student": net.module.state_dict(), "teacher": average.state_dict()}, "net.pt")
