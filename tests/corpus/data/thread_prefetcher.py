# corpus: idioms = training loop without torch DataLoader (own iterator, queue, replay buffer); multiprocessing/threads/queues for data; order, crops or lengths drawn from np.random / random in dataset, sampler or loop; DataLoader built in: none in closure (relative to the wrap); batch size multiplied by the number of GPUs in the script
# corpus: worlds = 2 3
# corpus: helpers = WholeBatchDDP hold_on_rank0
"""Corner detection the old way: a thread fills a queue with whole batches, the loop takes them out."""
import argparse
import queue
import threading

import numpy as np
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument('--iters', type=int, default=14)
parser.add_argument('--per-gpu', type=int, default=3)
args = parser.parse_args()


def sample_data(db, k_ind, batch_size, rng):
    """One batch, as data_sampling_func does it."""
    images = np.zeros((batch_size, 1, 10, 10), dtype=np.float32)
    heats = np.zeros((batch_size, 1, 10, 10), dtype=np.float32)
    for b in range(batch_size):
        if k_ind == 0:
            rng.shuffle(db)
        image, (r, c) = db[k_ind]
        k_ind = (k_ind + 1) % len(db)
        images[b, 0] = image + 0.05 * rng.randn(10, 10)
        heats[b, 0, r, c] = 1.
    return {'xs': [torch.from_numpy(images)], 'ys': [torch.from_numpy(heats)]}, k_ind


def prefetch_data(db, q, stop, batch_size):
    ind = 0
    # nobody knows when this thread is asked: the seed is its own
    rng = np.random.RandomState(123)
    while not stop.is_set():
        data, ind = sample_data(db, ind, batch_size, rng)
        while not stop.is_set():
            try:
                q.put(data, timeout=0.1)
                break
            except queue.Full:
                continue


def make_db(n=23):
    rng = np.random.RandomState(7)
    db = []
    for _ in range(n):
        r, c = rng.randint(1, 9, size=2)
        image = np.zeros((10, 10))
        image[r, :c], image[:r, c] = 1., 1.
        db.append((image, (r, c)))
    return db


class Hourglass(nn.Module):
    def __init__(self):
        super(Hourglass, self).__init__()
        self.pre = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(True))
        self.heat = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x):
        return torch.sigmoid(self.heat(self.pre(x))).clamp(1e-4, 1 - 1e-4)


def focal_loss(pred, gt):
    pos, neg = gt.eq(1).float(), gt.lt(1).float()
    pos_loss = torch.log(pred) * (1 - pred) ** 2 * pos
    neg_loss = torch.log(1 - pred) * pred ** 2 * neg
    num_pos = pos.sum()
    return -(pos_loss.sum() + neg_loss.sum()) / num_pos if num_pos > 0 else -neg_loss.sum()


def main():
    torch.manual_seed(317)
    batch_size = args.per_gpu * torch.cuda.device_count()
    training_queue = queue.Queue(5)
    stop = threading.Event()
    thread = threading.Thread(target=prefetch_data, args=(make_db(), training_queue, stop, batch_size))
    thread.daemon = True
    thread.start()

    net = nn.DataParallel(Hourglass().cuda())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    net.train()
    for iteration in range(1, args.iters + 1):
        training = training_queue.get(block=True)
        xs, ys = [x.cuda(non_blocking=True) for x in training['xs']], [y.cuda() for y in training['ys']]
        optimizer.zero_grad()
        loss = focal_loss(net(xs[0]), ys[0])
        loss.backward()
        optimizer.step()
        if iteration % 2 == 0:
            print('training loss at iteration {}: {:.6f}'.format(iteration, loss.item()))
    stop.set()
    thread.join()
    torch.save(net.module.state_dict(), 'corner_net.pkl')


if __name__ == '__main__':
    main()
