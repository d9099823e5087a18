# corpus: idioms = shuffle literal True; drop_last; sampler=; order, crops or lengths drawn from np.random / random in dataset, sampler or loop; two or more backward() before one step, or forward twice before backward; torch.rand* inside the train step; np.random/random seed; len(loader) used as divisor / schedule (breaks when the loader shrinks); DataLoader built in: same file, other scope (relative to the wrap)
"""FixMatch-like: a small labelled loader that starts again, a large unlabelled one, zipped and cycled."""
import itertools
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.data as data
from torch.utils.data.sampler import SubsetRandomSampler

SEED = 42
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)


def get_loaders(batch_size=6, mu=2):
    x = torch.randn(96, 1, 8, 8)
    y = (x.mean((1, 2, 3)) > 0).long() + 2 * (x[:, 0, 0, 0] > 0).long()
    idx = np.random.permutation(96)
    labeled, unlabeled = idx[:16], idx[16:76]
    train = data.TensorDataset(x, y)
    l_loader = data.DataLoader(train, batch_size=batch_size, sampler=SubsetRandomSampler(labeled), drop_last=True)
    u_loader = data.DataLoader(data.Subset(train, unlabeled), batch_size * mu, shuffle=True, drop_last=True)
    v_loader = data.DataLoader(data.Subset(train, idx[76:]), batch_size=7)
    return l_loader, u_loader, v_loader


def weak(x):
    return torch.roll(x, random.randint(-1, 1), dims=3)


def strong(x):
    x = weak(x) + 0.3 * torch.randn_like(x)
    cut = np.random.randint(0, 6)
    x[:, :, cut:cut + 3] = 0
    return x


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.c1 = nn.Conv2d(1, 8, 3, padding=1)
        self.b1 = nn.BatchNorm2d(8, momentum=0.01)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(F.leaky_relu(self.b1(self.c1(x)), 0.1).mean((2, 3)))


l_loader, u_loader, v_loader = get_loaders()
net = nn.DataParallel(Net()).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
total = 3 * len(u_loader)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: np.cos(7. * np.pi * i / (16. * total)))

l_iter = iter(l_loader)
for epoch in range(2):
    net.train()
    masks = []
    for i, (u, _) in enumerate(u_loader):
        try:
            x, y = next(l_iter)
        except StopIteration:
            l_iter = iter(l_loader)
            x, y = next(l_iter)
        x, y = weak(x.cuda()), y.cuda()
        logits = net(torch.cat([x, weak(u.cuda()), strong(u.cuda())]))
        sup, (w, s) = logits[:len(x)], logits[len(x):].chunk(2)
        prob = torch.softmax(w.detach() / 0.7, dim=-1)
        conf, pseudo = prob.max(dim=-1)
        mask = conf.ge(0.4).float()
        loss = F.cross_entropy(sup, y) + (F.cross_entropy(s, pseudo, reduction='none') * mask).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        masks.append(mask.mean().item())
    print('epoch %d lr %.5f mask %.3f loss %.4f' % (epoch, sched.get_last_lr()[0], np.mean(masks), loss.item()))

# the last epoch the other way round: labels for ever, zipped with what is not labelled
for (x, y), (u, _) in zip(itertools.cycle(l_loader), u_loader):
    opt.zero_grad()
    F.cross_entropy(net(x.cuda()), y.cuda()).backward()
    F.mse_loss(net(strong(u.cuda())), net(u.cuda()).detach()).backward()
    opt.step()

net.eval()
hits = 0
with torch.no_grad():
    for x, y in v_loader:
        hits += (net(x.cuda()).max(1)[1].cpu() == y).sum().item()
print('val acc: %.2f' % (100. * hits / len(v_loader.dataset)))
