# corpus: idioms = train loop / backward in: same scope (relative to the wrap); DataLoader built in: same scope (relative to the wrap)
# corpus: idioms = nn.DataParallel; function main/train/run; rebinds the same name; is CUDA available / use_cuda flag only; DP(...).cuda()
# corpus: idioms = batch skipped when smaller than args.batchsize; args.batch_size used outside the DataLoader (loss mask, steps, lr, asserts, meters)
# corpus: idioms = shuffle literal True; AverageMeter; manual adjust_learning_rate; Variable(); len(loader.dataset); argparse; __name__ guard; torch.save; module.state_dict() (no prefix)
# corpus: worlds = 2 3 4
'''Semantic segmentation of blobs, a small encoder-decoder.'''
from __future__ import print_function
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.autograd import Variable
from torch.utils import data

parser = argparse.ArgumentParser(description='segmentation')
parser.add_argument('--batchsize', type=int, default=8)
parser.add_argument('--lr', type=float, default=0.05)
parser.add_argument('--epochs', type=int, default=3)
parser.add_argument('--snapshot', default='snapshots')
parser.add_argument('--no-cuda', action='store_true')
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()
torch.manual_seed(1)


class Blobs(data.Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(7)
        self.images = torch.randn(n, 1, 8, 8, generator=g)
        self.labels = (F.avg_pool2d(self.images, 3, 1, 1) > 0.1).long().squeeze(1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class SegNet(nn.Module):
    def __init__(self, classes=2):
        super(SegNet, self).__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU(inplace=True))
        self.up = nn.Conv2d(6, classes, 3, 1, 1)

    def forward(self, x):
        out = self.up(self.down(x))
        return F.interpolate(out, size=x.size()[2:], mode='bilinear', align_corners=False)


class AverageMeter(object):
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


def adjust_learning_rate(optimizer, it, total):
    lr = args.lr * (args.batchsize / 8.0) * (1 - float(it) / total) ** 0.9
    for group in optimizer.param_groups:
        group['lr'] = lr
    return lr


def main():
    train_loader = data.DataLoader(Blobs(45), batch_size=args.batchsize, shuffle=True)
    model = SegNet()
    if args.cuda:
        model = nn.DataParallel(model).cuda()
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    total = args.epochs * (len(train_loader.dataset) // args.batchsize)
    it = 0
    for epoch in range(args.epochs):
        model.train()
        meter, skipped = AverageMeter(), 0
        for i, (images, labels) in enumerate(train_loader):
            if images.size(0) < args.batchsize:
                skipped += 1
                continue
            images, labels = Variable(images.cuda()), Variable(labels.cuda())
            lr = adjust_learning_rate(optimizer, it, total)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            meter.update(loss.item(), args.batchsize)
            it += 1
            if i % 2 == 0:
                print('epoch %d iter %d/%d lr %.5f loss %.4f' % (epoch, it, total, lr, meter.avg))
        print('epoch %d done, %d images seen, %d batches skipped' % (epoch, meter.count, skipped))
        if not os.path.exists(args.snapshot):
            os.mkdir(args.snapshot)
        torch.save(model.module.state_dict(), os.path.join(args.snapshot, 'seg_%d.pth' % epoch))
    assert it == total


if __name__ == '__main__':
    main()
