# corpus: idioms = multiprocessing/threads/queues for data; training loop without torch DataLoader (own iterator, queue, replay buffer); np.random/random seed; torch.manual_seed; nn.DataParallel; function main/train/run
# corpus: worlds = 2 3
"""As CornerNet loads: a process makes batches, a thread takes them on, and buffers go back to be filled anew."""
import itertools
import queue
import threading

import numpy as np
import torch
import torch.nn as nn
from torch.multiprocessing import Process, Queue


def prefetch(made, seed):
    np.random.seed(seed)
    for k in itertools.count():
        rows = 17 if k % 2 else 24
        images = torch.from_numpy(np.random.rand(rows, 3, 20, 20).astype('float32'))
        marks = torch.from_numpy((np.random.rand(rows, 20, 20) > 0.5).astype('float32'))
        made.put({'xs': [images], 'ys': [marks], 'number': k})


def take_on(made, taken, free):
    for _ in range(6):
        data = made.get()
        place = free.get()
        place.resize_(data['xs'][0].shape).copy_(data['xs'][0])
        data['xs'] = [place]
        taken.put(data)


class Corners(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 1, 1)

    def forward(self, image):
        return self.last(torch.relu(self.first(image)))[:, 0]


def train():
    made, taken, free = Queue(2), queue.Queue(1), queue.Queue()
    free.put(torch.zeros(1))
    task = Process(target=prefetch, args=(made, 4))
    task.daemon = True
    task.start()
    thread = threading.Thread(target=take_on, args=(made, taken, free))
    thread.daemon = True
    thread.start()
    net = nn.DataParallel(Corners()).cuda()
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(6):
        data = taken.get()
        images, marks = data['xs'][0], data['ys'][0]
        out = net(images.cuda())
        free.put(images)
        weight = 1 + marks.mean()
        loss = weight * nn.functional.binary_cross_entropy_with_logits(out, marks.cuda())
        opt.zero_grad()
        loss.backward()
        opt.step()
        print('step %d of batch %d: %.5f, %d images' % (step, data['number'], loss.item(), len(out)))
    thread.join()
    task.terminate()


torch.manual_seed(8)
train()
