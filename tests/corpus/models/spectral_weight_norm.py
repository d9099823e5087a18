# corpus: idioms = torch.nn.DataParallel; several models wrapped in one script; two or more backward() before one step, or forward twice before backward; batch statistics in forward other than BN (minibatch stddev, global memory bank); buffer or counter written in forward; device_ids literal/comprehension list; output_device=; module level, bare; DP(...).to(device); EMA / second copy of weights; BN frozen or momentum scheduled in the loop; torch.rand* inside the train step; several optimizers; name = DP(Constructor(...))
# corpus: worlds = 2 3
"""SN-GAN with a conditional generator, minibatch stddev, weight-normed encoder and an averaged generator."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

torch.manual_seed(21)
n_gpu = torch.cuda.device_count()
device = torch.device('cuda')


class CBN(nn.Module):
    def __init__(self, n, classes):
        super().__init__()
        self.bn = nn.BatchNorm1d(n, affine=False)
        self.embed = nn.Embedding(classes, 2 * n)
        self.embed.weight.data[:, :n].fill_(1.)
        self.embed.weight.data[:, n:].zero_()

    def forward(self, x, y):
        gamma, beta = self.embed(y).chunk(2, 1)
        return gamma * self.bn(x) + beta


class G(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = spectral_norm(nn.Linear(4, 12))
        self.cbn = CBN(12, 3)
        self.l2 = parametrizations.spectral_norm(nn.Linear(12, 8))

    def forward(self, z, y):
        return torch.tanh(self.l2(F.relu(self.cbn(self.l1(z), y))))


class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = spectral_norm(nn.Conv1d(1, 4, 3, padding=1))
        self.enc = weight_norm(nn.Linear(32, 10), name='weight')
        self.out = parametrizations.weight_norm(nn.Linear(11, 1))
        self.proj = spectral_norm(nn.Embedding(3, 10))
        self.register_buffer('bank', torch.zeros(10))

    def minibatch_stddev(self, h):
        s = torch.sqrt(h.var(0, unbiased=False) + 1e-8).mean()
        return torch.cat([h, s.expand(h.size(0), 1)], 1)

    def forward(self, x, y):
        h = F.leaky_relu(self.conv(x.unsqueeze(1)), 0.1).flatten(1)
        h = F.leaky_relu(self.enc(h), 0.1)
        if self.training:
            with torch.no_grad():
                self.bank.mul_(0.9).add_(0.1 * h.mean(0))
        out = self.out(self.minibatch_stddev(h)) + ((h - self.bank) * self.proj(y)).sum(1, keepdim=True)
        return out.squeeze(1)


netG = torch.nn.DataParallel(G().to(device), device_ids=[i for i in range(n_gpu)], output_device=0)
netD = torch.nn.DataParallel(D(), device_ids=[i for i in range(n_gpu)]).to(device)
G_ema = copy.deepcopy(netG.module).eval()
optG = torch.optim.Adam(netG.parameters(), 2e-3, (0.0, 0.9))
optD = torch.optim.Adam(netD.parameters(), 4e-3, (0.0, 0.9))
gen = torch.Generator().manual_seed(2)
X, Y = torch.randn(44, 8, generator=gen), torch.randint(0, 3, (44,), generator=gen)
for it in range(8):
    lo = (it * 8) % 44
    x, y = X[lo:lo + 8].to(device), Y[lo:lo + 8].to(device)
    if it == 6:
        for m in netG.modules():
            if isinstance(m, nn.BatchNorm1d):
                m.momentum = 0.05
    b = x.size(0)
    for p in netD.parameters():
        p.requires_grad_(True)
    netG.train()
    z = torch.randn(b, 4, device=device)
    fake = netG(z, y)
    lossD = F.relu(1. - netD(x, y)).mean()
    lossD.backward()
    lossD2 = F.relu(1. + netD(fake.detach(), y)).mean()
    lossD2.backward()
    optD.step()
    optD.zero_grad()
    for p in netD.parameters():
        p.requires_grad_(False)
    lossG = -netD(netG(torch.randn(b, 4, device=device), y), y).mean()
    optG.zero_grad()
    lossG.backward()
    optG.step()
    with torch.no_grad():
        for p, q in zip(G_ema.parameters(), netG.module.parameters()):
            p.lerp_(q, 0.2)
        for p, q in zip(G_ema.buffers(), netG.module.buffers()):
            p.copy_(q)
    if it % 4 == 3:
        netG.eval()
        with torch.no_grad():
            a, c = netG(z[:3], y[:3]), G_ema(z[:3], y[:3])
        print('%2d D %.5f %.5f G %.5f  sample %.5f ema %.5f bank %.5f' % (
            it, lossD.item(), lossD2.item(), lossG.item(), a.sum().item(), c.sum().item(), netD.module.bank.sum().item()))
torch.save({'G': netG.state_dict(), 'D': netD.state_dict(), 'ema': G_ema.state_dict()}, 'sngan.pt')
