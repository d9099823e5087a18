# corpus: idioms = multiprocessing/threads/queues for data; training loop without torch DataLoader (own iterator, queue, replay buffer); DataLoader built in: none in closure (relative to the wrap); order, crops or lengths drawn from np.random / random in dataset, sampler or loop; args.batch_size used outside the DataLoader (loss mask, steps, lr, asserts, meters); makedirs/mkdir
# corpus: worlds = 2 3
# corpus: helpers = WholeBatchDDP hold_on_rank0
"""Audio tagging: a pool of processes computes the spectra of files ahead, the loop takes them in order."""
import argparse
import os
import random
from multiprocessing import Pool

import numpy as np
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument('--batch_size', default=7, type=int)
parser.add_argument('--cache', default='wavs')
args = parser.parse_args()
torch.manual_seed(0)
random.seed(0)
N, TAGS = 19, 3


def write_files():
    os.makedirs(args.cache, exist_ok=True)
    rng = np.random.RandomState(0)
    names = []
    for i in range(N):
        path = os.path.join(args.cache, '%02d.npy' % i)
        tag = i % TAGS
        t = np.arange(64)
        np.save(path, np.sin(t * (0.2 + 0.3 * tag)) + 0.3 * rng.randn(64))
        names.append((path, tag))
    return names


def spectrum(job):
    path, tag = job
    wave = np.load(path)
    # another crop each time, by the file's own name: processes have no order among them
    start = int(path[-6:-4]) % 8
    frames = np.abs(np.fft.rfft(wave[start:start + 48].reshape(3, 16), axis=1))
    return frames.astype('float32'), tag


def minibatches(pool, files):
    frames, tags = [], []
    for f, tag in pool.imap(spectrum, files, chunksize=4):
        frames.append(f)
        tags.append(tag)
        if len(tags) == args.batch_size:
            yield torch.from_numpy(np.stack(frames)), torch.tensor(tags)
            frames, tags = [], []
    if tags:
        yield torch.from_numpy(np.stack(frames)), torch.tensor(tags)


def main():
    files = write_files()
    net = nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(56, TAGS)).cuda()
    net = nn.DataParallel(net)
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    pool = Pool(2)
    for epoch in range(3):
        random.shuffle(files)
        hits = steps = 0
        for x, y in minibatches(pool, files):
            x, y = x.cuda(), y.cuda()
            out = net(x)
            loss = nn.functional.cross_entropy(out, y) * len(y) / args.batch_size
            opt.zero_grad()
            loss.backward()
            opt.step()
            hits += (out.argmax(1) == y).sum().item()
            steps += 1
        print('epoch %d: %d steps, right %d of %d, %s first' % (epoch, steps, hits, len(files), files[0][0]))
    pool.close()
    pool.join()


if __name__ == '__main__':
    main()
