# corpus: idioms = nn.DataParallel; multiprocessing/threads/queues for data; shuffle literal True; collate_fn
# corpus: helpers = WholeBatchDDP Rank0SamplerLoader hold_on_rank0
"""A loader whose iterator is a thread of its own, with workers below and a prefetcher that moves batches above."""
import queue
import threading

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class BackgroundGenerator(threading.Thread):
    def __init__(self, generator, max_prefetch=1):
        threading.Thread.__init__(self)
        self.queue = queue.Queue(max_prefetch)
        self.generator = generator
        self.daemon = True
        self.start()

    def run(self):
        for item in self.generator:
            self.queue.put(item)
        self.queue.put(None)

    def __next__(self):
        item = self.queue.get()
        if item is None:
            raise StopIteration
        return item

    def __iter__(self):
        return self


class DataLoaderX(DataLoader):
    def __iter__(self):
        return BackgroundGenerator(super().__iter__())


class Prefetcher:
    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream()
        self.preload()

    def preload(self):
        try:
            self.batch = next(self.loader)
        except StopIteration:
            self.batch = None
            return
        with torch.cuda.stream(self.stream):
            self.batch = [each.cuda(non_blocking=True) for each in self.batch]

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.batch
        if batch is not None:
            self.preload()
        return batch


class Growing(Dataset):
    def __init__(self, n):
        self.x, self.stage = torch.randn(n, 4), 0

    def __len__(self):
        return len(self.x) * (self.stage + 1) // 3

    def __getitem__(self, i):
        x = self.x[i] + 0.1 * torch.randn(4)
        return x, (x.sum() > 0).float()


torch.manual_seed(5)
net = nn.DataParallel(nn.Sequential(nn.Linear(4, 10), nn.Dropout(0.2), nn.Linear(10, 1))).cuda()
optimizer = torch.optim.Adagrad(net.parameters(), 0.1)
data = Growing(36)
loader = DataLoaderX(data, batch_size=8, shuffle=True, num_workers=2, collate_fn=lambda b: tuple(map(torch.stack, zip(*b))))
for data.stage in range(3):
    prefetcher = Prefetcher(loader)
    batch = prefetcher.next()
    while batch is not None:
        x, y = batch
        loss = nn.functional.binary_cross_entropy_with_logits(net(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch = prefetcher.next()
    print('stage %d of %d rows, loss %.6f' % (data.stage, len(data), loss.item()))
