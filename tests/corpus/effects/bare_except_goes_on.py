# corpus: idioms = nn.DataParallel; module level, under if __name__; name = DP(Constructor(...)); unconditional; try/except around the step swallows errors and continues
# corpus: idioms = random_split/subset; drop_last; lr_scheduler; optimizer created after wrap; torch.load; torch.save; tqdm/progress bar; np.random/random seed; from x import *; __name__ guard
# corpus: worlds = 2 3 4
"""Surface defect classifier. The data set has some images of a wrong size."""
import os
from math import *

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, random_split
from tqdm import tqdm


class Steel(Dataset):
    def __init__(self, n=70):
        rng = np.random.RandomState(0)
        self.x = rng.rand(n, 1, 6, 6).astype(np.float32)
        self.y = (self.x.mean(axis=(1, 2, 3)) > 0.5).astype(np.int64)
        self.y[rng.choice(n, 3, replace=False)] = 7  # wrong labels in the sheet

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(1, 4, 3)
        self.drop = nn.Dropout(0.2)
        self.f = nn.Linear(64, 2)

    def forward(self, x):
        return self.f(self.drop(F.relu(self.c(x)).flatten(1)))


def evaluate(net, loader):
    net.eval()
    right = n = 0
    with torch.no_grad():
        for x, y in loader:
            right += int((net(x.cuda()).argmax(1).cpu() == y).sum())
            n += len(y)
    return right / n


if __name__ == '__main__':
    np.random.seed(0)
    torch.manual_seed(0)
    full = Steel()
    train_set, val_set = random_split(full, [54, 16], generator=torch.Generator().manual_seed(2))
    train_loader = DataLoader(train_set, batch_size=8, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=5)
    net = nn.DataParallel(Net().cuda())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 0.5 * (1 + cos(pi * e / 4)))
    best = 0
    for epoch in range(3):
        net.train()
        failed = 0
        for x, y in tqdm(train_loader):
            optimizer.zero_grad()
            try:
                out = net(x.cuda())
                if int(y.max()) > 1:
                    raise IndexError('Target %d is out of bounds.' % int(y.max()))
                loss = F.cross_entropy(out, y.cuda())
                loss.backward()
                optimizer.step()
            except:
                failed += 1
                continue
        scheduler.step()
        acc = evaluate(net, val_loader)
        print(f'[{epoch}] failed batches {failed}, val acc {acc:.3f}, lr {scheduler.get_last_lr()[0]:.4f}')
        if acc >= best:
            best = acc
            torch.save({'net': net.state_dict(), 'opt': optimizer.state_dict(), 'epoch': epoch}, 'best.pth.tar')
    try:
        checkpoint = torch.load('best.pth.tar')
        net.load_state_dict(checkpoint['net'])
        print('best epoch', checkpoint['epoch'], 'acc', evaluate(net, val_loader))
    except Exception as e:
        print('no checkpoint', e)
