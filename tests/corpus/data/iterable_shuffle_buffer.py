# corpus: idioms = IterableDataset; order, crops or lengths drawn from np.random / random in dataset, sampler or loop; collate_fn; lr / phase / stop schedule driven by locally counted samples or tokens; np.random/random seed; manual adjust_learning_rate
# corpus: worlds = 2 3
"""Click logs from a stream: an iterable data set with a shuffle buffer, no length, stopped by samples."""
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

random.seed(11)
np.random.seed(11)
torch.manual_seed(11)
FIELDS = ('user', 'item', 'hour')


def read_lines(n):
    state = 12345
    for _ in range(n):
        state = (1103515245 * state + 12345) % 2 ** 31
        user, item, hour = state % 13, state // 13 % 29, state // 377 % 24
        yield '%d\t%d\t%d\t%d' % (user, item, hour, int((user * item + hour) % 3 == 0))


class Clicks(IterableDataset):
    def __init__(self, n, buffer_size=16):
        super(Clicks, self).__init__()
        self.n, self.buffer_size = n, buffer_size
        self.rows_read = 0

    def parse(self, line):
        *fields, label = map(int, line.split('\t'))
        return dict(zip(FIELDS, fields)), label

    def __iter__(self):
        buf = []
        for line in read_lines(self.n):
            self.rows_read += 1
            row = self.parse(line)
            if len(buf) < self.buffer_size:
                buf.append(row)
                continue
            i = random.randrange(self.buffer_size)
            yield buf[i]
            buf[i] = row
        np.random.shuffle(buf)
        yield from buf


class FM(nn.Module):
    def __init__(self, k=8):
        super(FM, self).__init__()
        self.emb = nn.ModuleDict({'user': nn.Embedding(13, k), 'item': nn.Embedding(29, k), 'hour': nn.Embedding(24, k)})
        self.lin = nn.Linear(3 * k, 1)

    def forward(self, x):
        e = [self.emb[f](x[f]) for f in FIELDS]
        pair = (e[0] * e[1]).sum(1) + (e[0] * e[2]).sum(1) + (e[1] * e[2]).sum(1)
        return self.lin(torch.cat(e, 1)).squeeze(1) + pair


def adjust_learning_rate(opt, seen):
    lr = 0.05 * (0.5 ** (seen // 100))
    for g in opt.param_groups:
        g['lr'] = lr
    return lr


data = Clicks(141)
loader = DataLoader(data, batch_size=16)
model = nn.DataParallel(FM()).cuda()
opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
bce = nn.BCEWithLogitsLoss()
seen = 0
while seen < 350:
    for x, y in loader:
        lr = adjust_learning_rate(opt, seen)
        out = model({k: v.cuda() for k, v in x.items()})
        loss = bce(out, y.float().cuda())
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen += len(y)
        if seen >= 350:
            break
    print('seen %d of %d rows read, lr %.4f, logloss %.5f' % (seen, data.rows_read, lr, loss.item()))
