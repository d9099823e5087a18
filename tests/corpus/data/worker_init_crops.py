# corpus: idioms = worker_init_fn; order, crops or lengths drawn from np.random / random in dataset, sampler or loop; shuffle literal True; drop_last; np.random/random seed; cudnn flags; manual adjust_learning_rate; AverageMeter; own flag (args.multi_gpu / parallel / mGPUs ...)
"""Super-resolution: random crops and flips drawn in loader workers, seeded by worker_init_fn; workers persist."""
import argparse
import random

import numpy as np
import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument('--threads', type=int, default=2)
parser.add_argument('--patch', type=int, default=6)
parser.add_argument('--seed', type=int, default=123)
parser.add_argument('--multi_gpu', action='store_false')
opt = parser.parse_args()

cudnn.deterministic = True
random.seed(opt.seed)
np.random.seed(opt.seed)
torch.manual_seed(opt.seed)


class Patches(Dataset):
    def __init__(self, n=36):
        g = np.random.RandomState(3)
        self.hr = g.rand(n, 1, 12, 12).astype(np.float32)

    def __len__(self):
        return len(self.hr)

    def __getitem__(self, index):
        hr = self.hr[index]
        top, left = random.randint(0, 12 - opt.patch), np.random.randint(0, 12 - opt.patch + 1)
        hr = hr[:, top:top + opt.patch, left:left + opt.patch]
        if random.random() < 0.5:
            hr = hr[:, :, ::-1].copy()
        lr = hr.reshape(1, opt.patch // 2, 2, opt.patch // 2, 2).mean((2, 4))
        noise = torch.randn(1) * 0.01
        return torch.from_numpy(lr) + noise, torch.from_numpy(hr)


def seed_worker(worker_id):
    seed = torch.initial_seed() % 2 ** 32
    np.random.seed(seed)
    random.seed(seed + worker_id)


class AverageMeter(object):
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


loader = DataLoader(Patches(), batch_size=10, shuffle=True, num_workers=opt.threads, worker_init_fn=seed_worker,
                    persistent_workers=True, pin_memory=False)
net = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.PReLU(), nn.Conv2d(12, 4, 3, padding=1), nn.PixelShuffle(2)).cuda()
if opt.multi_gpu:
    net = nn.DataParallel(net)
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
l1 = nn.L1Loss()
for epoch in range(3):
    for group in optimizer.param_groups:
        group['lr'] = 5e-3 * (0.5 ** epoch)
    losses = AverageMeter()
    for i, (lr, hr) in enumerate(loader):
        sr = net(lr.cuda())
        loss = l1(sr, hr.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.update(loss.item(), lr.size(0))
    psnr = -10 * np.log10(losses.avg ** 2)
    print('===> Epoch {} Avg. Loss {:.6f} PSNR {:.3f} last batch {}'.format(epoch, losses.avg, psnr, tuple(lr.shape)))
