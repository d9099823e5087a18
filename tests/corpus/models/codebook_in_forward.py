# corpus: idioms = nn.DataParallel; module level, bare; name = DP(Constructor(...)); output_device=; .cuda(arg); buffer or counter written in forward; batch statistics in forward other than BN (minibatch stddev, global memory bank); tensors left on the CPU, DP.scatter does the copy; computed inside the wrapped forward, gathered, then .mean(); p.data edits outside optimizer
# corpus: worlds = 2 3
"""VQ codebook kept as a frozen Parameter, updated by .data in forward; own generators in the module; output on GPU 1."""
import random
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class VectorQuantizer(nn.Module):
    def __init__(self, n=6, d=4):
        super().__init__()
        self.codebook = nn.Parameter(torch.randn(n, d), requires_grad=False)
        self.center = nn.Parameter(torch.zeros(d))
        self.rng = np.random.RandomState(3)
        self.gen = torch.Generator().manual_seed(5)
        self.py = random.Random(7)

    def forward(self, z):
        idx = torch.cdist(z, self.codebook.detach()).argmin(1)
        q = self.codebook.data[idx]
        if self.training:
            for i in idx.unique():
                self.codebook.data[i].mul_(0.9).add_(0.1 * z.detach()[idx == i].mean(0))
            self.center.data.mul_(0.5).add_(z.detach().mean(0), alpha=0.01)
            q = q + self.rng.rand() * 0.1 + torch.randn(1, generator=self.gen).to(z.device) * 0.1 + self.py.random() * 0.1
        return z + (q - z).detach(), F.mse_loss(z, q.detach()) + (z - self.center).pow(2).mean()


class AE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec, self.vq = nn.Linear(5, 4), nn.Linear(4, 5), VectorQuantizer()

    def forward(self, x):
        q, commit = self.vq(self.enc(x))
        return self.dec(q), commit


torch.manual_seed(0)
net = nn.DataParallel(AE().cuda(), output_device=1)
opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
g = torch.Generator().manual_seed(1)
X = torch.randn(30, 5, generator=g)
for step in range(8):
    x = X[(step * 7) % 30:][:7]
    out, commit = net(x)
    loss = F.mse_loss(out, x.cuda(1)) + commit.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, round(loss.item(), 5), round(net.module.vq.codebook.sum().item(), 5))
