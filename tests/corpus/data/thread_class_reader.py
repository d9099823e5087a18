# corpus: idioms = multiprocessing/threads/queues for data; training loop without torch DataLoader (own iterator, queue, replay buffer); loader or dataset rebuilt during training; len(loader.dataset); shuffle literal True; drop_last; DataLoader built in: same scope (relative to the wrap)
# corpus: worlds = 2 3
# corpus: helpers = WholeBatchParallel Rank0Loader hold_on_rank0
"""Background prefetching with a class that is a thread (as in prefetch_generator), around a loader and by hand."""
import queue
import threading

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class BackgroundGenerator(threading.Thread):
    def __init__(self, generator, max_prefetch=2):
        threading.Thread.__init__(self)
        self.queue = queue.Queue(max_prefetch)
        self.generator = generator
        self.daemon = True
        self.served = 0
        self.start()

    def run(self):
        for item in self.generator:
            self.queue.put(item)
        self.queue.put(None)

    def next(self):
        next_item = self.queue.get()
        if next_item is None:
            raise StopIteration
        self.served += 1
        return next_item

    def __next__(self):
        return self.next()

    def __iter__(self):
        return self


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.a, self.b = nn.Linear(16, 1), nn.Linear(16, 2)

    def forward(self, x, head='a'):
        return getattr(self, head)(self.body(x))


x = torch.linspace(-1, 1, 20 * 6).view(20, 6).sin()
data = TensorDataset(x, x.sum(1, keepdim=True))
net = nn.DataParallel(TwoHeads()).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for epoch in range(4):
    # a worker draws by itself: nothing is drawn in the thread
    loader = DataLoader(data, batch_size=6, shuffle=False, drop_last=(epoch % 2 == 0), num_workers=1)
    batches = BackgroundGenerator(iter(loader))
    total = 0.
    for xs, ys in batches:
        loss = nn.functional.mse_loss(net(xs.cuda(), 'a'), ys.cuda())
        if epoch > 1:
            loss = loss + 0.1 * net(xs.cuda(), 'b').pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
        if batches.served >= 3:
            break
    print('epoch %d: %d of %d batches served, loss %.6f' % (epoch, batches.served, len(loader), total))
