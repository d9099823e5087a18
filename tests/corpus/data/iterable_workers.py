# corpus: idioms = IterableDataset; DataLoader already yields whole batches (batch_size=1 or custom dataset batches); worker_init_fn; collate_fn; multiprocessing/threads/queues for data; lr_scheduler; tensors left on the CPU, DP.scatter does the copy; np.random/random seed
# corpus: worlds = 2 3
"""Web-scale text in miniature: shards are shared out among the loader's workers, which make whole batches."""
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SEED = 17
np.random.seed(SEED)
torch.manual_seed(SEED)


class Shards(IterableDataset):
    def __init__(self, shards, batch, epoch=0):
        self.shards, self.batch, self.epoch = shards, batch, epoch

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        mine = self.shards if info is None else self.shards[info.id::info.num_workers]
        rng = random.Random(1000 * self.epoch + (0 if info is None else info.id))
        rows = [(i, k) for i in mine for k in range(9)]
        rng.shuffle(rows)
        for at in range(0, len(rows), self.batch):
            part = rows[at:at + self.batch]
            noise = np.random.randn(len(part), 5).astype('float32')  # of the worker's own stream
            x = np.array([[i, k, i * k % 5, (i + k) % 3, 1] for i, k in part], dtype='float32') / 9
            yield {'x': torch.from_numpy(x + 0.05 * noise), 'y': torch.tensor([(i + k) % 3 for i, k in part]), 'shard': part[0][0]}


def init(worker_id):
    np.random.seed(SEED + worker_id)


data = Shards(list(range(4)), batch=6)
loader = DataLoader(data, batch_size=None, num_workers=2, worker_init_fn=init, collate_fn=lambda item: item)
net = nn.DataParallel(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.2)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 24)
for epoch in range(2):
    loader.dataset.set_epoch(epoch)
    hits = seen = 0
    first = []
    for batch in loader:
        out = net(batch['x'])
        loss = nn.functional.cross_entropy(out, batch['y'].cuda())
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        hits += (out.argmax(1).cpu() == batch['y']).sum().item()
        seen += len(batch['y'])
        first.append(batch['shard'])
    print('epoch %d: %d of %d right, shards %s, lr %.4f' % (epoch, hits, seen, first, sched.get_last_lr()[0]))
