# corpus: idioms = shuffle literal True; drop_last; nn.DataParallel; order, crops or lengths drawn from np.random / random in dataset, sampler or loop; worker_init_fn; AverageMeter; manual adjust_learning_rate; .cuda()
# corpus: worlds = 2 3 4
# corpus: helpers = WholeBatchDDP Rank0Loader Rank0SamplerLoader
# Fine-grained classification with random crops, flips and erasing, loaded by two workers.
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument('--epochs', default=2, type=int)
parser.add_argument('-b', '--batch-size', default=6, type=int)
parser.add_argument('-j', '--workers', default=2, type=int)
parser.add_argument('--lr', default=0.05, type=float)
args = parser.parse_args()


class AverageMeter(object):
    def __init__(self):
        self.sum, self.count = 0., 0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


class Birds(Dataset):
    """20 "photographs" of 12 x 12, cropped to 8 x 8."""

    def __init__(self, train):
        rng = np.random.RandomState(0 if train else 1)
        self.images = rng.rand(20, 3, 12, 12).astype('float32')
        self.labels = rng.randint(0, 4, 20)
        self.train = train

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        top, left = (np.random.randint(0, 5), np.random.randint(0, 5)) if self.train else (2, 2)
        image = image[:, top:top + 8, left:left + 8].copy()
        if self.train and random.random() < 0.5:
            image = image[:, :, ::-1].copy()
        image = torch.from_numpy(image)
        if self.train and torch.rand(1).item() < 0.3:
            image[:, 2:4, 2:4] = torch.randn(3, 2, 2)
        return image, int(self.labels[index])


def seed_worker(worker_id):
    np.random.seed((torch.initial_seed() + worker_id) % 2 ** 32)


def adjust_learning_rate(optimizer, epoch):
    for group in optimizer.param_groups:
        group['lr'] = args.lr * (0.5 ** epoch)


def main():
    torch.manual_seed(1)
    kwargs = {'num_workers': args.workers, 'pin_memory': True}
    train_loader = DataLoader(Birds(True), batch_size=args.batch_size, shuffle=True, worker_init_fn=seed_worker, **kwargs)
    val_loader = DataLoader(Birds(False), batch_size=args.batch_size, drop_last=True, num_workers=args.workers)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(6, 4))
    model = nn.DataParallel(model).cuda()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    for epoch in range(args.epochs):
        adjust_learning_rate(optimizer, epoch)
        losses = AverageMeter()
        model.train()
        for images, labels in train_loader:
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.update(loss.item(), images.size(0))
        model.eval()
        right = 0
        with torch.no_grad():
            for images, labels in val_loader:
                right += (model(images.cuda()).argmax(1).cpu() == labels).sum().item()
        print('epoch {} lr {:.3f} loss {:.5f} right {}'.format(epoch, optimizer.param_groups[0]['lr'], losses.avg, right))


if __name__ == '__main__':
    main()
