# corpus: idioms = parameters without gradient on a step (optional heads, toggled requires_grad, unused branches); lr_scheduler; dict / list / non-tensor / None / raw samples passed to the wrapped forward; computed inside the wrapped forward, gathered, then .mean()
# corpus: worlds = 2 3 4
# corpus: helpers = WholeBatchParallel
"""Multi-task net: a head that is used in odd steps only, one that is never used; weight decay and momentum move both."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU())
        self.heads = nn.ModuleDict({'seg': nn.Linear(16, 4), 'depth': nn.Linear(16, 1), 'normal': nn.Linear(16, 3)})
        self.aux = nn.Linear(16, 4)                      # left over from the pretraining
        self.log_vars = nn.Parameter(torch.zeros(3))
        self.drop_path = 0.3

    def forward(self, x, tasks, targets, use_aux=False):
        h = self.trunk(x)
        losses = []
        for task in tasks:
            out = self.heads[task](h)
            if task == 'seg':
                losses.append(F.cross_entropy(out, targets['seg']) * torch.exp(-self.log_vars[0]) + self.log_vars[0])
            elif task == 'depth':
                valid = targets['depth'] > 0
                if valid.any():
                    losses.append((out.squeeze(1)[valid] - targets['depth'][valid]).abs().mean())
                else:
                    losses.append(out.sum() * 0)
            else:
                losses.append(1 - F.cosine_similarity(out, targets['normal']).mean())
        if use_aux:
            losses.append(0.2 * F.cross_entropy(self.aux(h), targets['seg']))
        return torch.stack(losses).sum()


def batches(n, bs, rng):
    g = torch.Generator().manual_seed(rng.randint(0, 1000))
    order = torch.randperm(n, generator=g)
    for chunk in order.split(bs):
        yield chunk


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bs', type=int, default=10)
    parser.add_argument('--epochs', type=int, default=4)
    parser.add_argument('--optimizer', default='adamw')
    args = parser.parse_args()
    rng = random.Random(4)
    torch.manual_seed(4)
    x = torch.randn(37, 8)
    seg = torch.randint(0, 4, (37,))
    depth = torch.randn(37)
    normal = F.normalize(torch.randn(37, 3))
    net = nn.DataParallel(MultiTask().cuda())
    if args.optimizer == 'adamw':
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    it = 0
    for epoch in range(args.epochs):
        for idx in batches(37, args.bs, rng):
            tasks = ['seg', 'depth'] if it % 2 else ['seg']
            targets = {'seg': seg[idx].cuda(), 'depth': depth[idx].cuda(), 'normal': normal[idx].cuda()}
            loss = net(x[idx].cuda(), tasks, targets, use_aux=rng.random() < 0.2).mean()
            optimizer.zero_grad()
            loss.backward()
            grads = {n: (None if p.grad is None else round(p.grad.abs().sum().item(), 6)) for n, p in net.module.named_parameters() if 'weight' in n}
            optimizer.step()
            it += 1
        print('epoch', epoch, 'loss %.6f' % loss.item(), tasks, grads)
        print('unused head now %.8f, aux %.8f' % (net.module.heads['normal'].weight.data.norm().item(), net.module.aux.weight.data.norm().item()))
        scheduler.step()
    torch.save([net.state_dict(), optimizer.state_dict()], 'final.pt')


if __name__ == '__main__':
    main()
