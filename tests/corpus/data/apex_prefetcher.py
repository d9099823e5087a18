# corpus: idioms = drop_last; sampler=; training loop without torch DataLoader (own iterator, queue, replay buffer); torch.manual_seed; manual adjust_learning_rate; AverageMeter; collate_fn; len(loader) used as divisor / schedule (breaks when the loader shrinks); function main/train/run
# corpus: worlds = 2 3
"""ImageNet as in apex: fast_collate of arrays, a prefetcher class with next(), normalisation on the device."""
import numpy as np
import torch
import torch.nn as nn
import torch.utils.data


class Images(torch.utils.data.Dataset):
    def __init__(self, n):
        rng = np.random.RandomState(1)
        self.target = rng.randint(0, 4, n)
        self.img = (rng.randint(0, 120, (n, 6, 6, 3)) + 30 * self.target[:, None, None, None]).astype(np.uint8)

    def __len__(self):
        return len(self.target)

    def __getitem__(self, i):
        return self.img[i], self.target[i]


def fast_collate(batch):
    imgs = [img[0] for img in batch]
    targets = torch.tensor([target[1] for target in batch], dtype=torch.int64)
    tensor = torch.zeros((len(imgs), 3, 6, 6), dtype=torch.uint8)
    for i, nump_array in enumerate(imgs):
        tensor[i] += torch.from_numpy(np.rollaxis(nump_array, 2))
    return tensor, targets


class data_prefetcher():
    def __init__(self, loader):
        self.loader = iter(loader)
        self.mean = torch.tensor([0.485 * 255, 0.456 * 255, 0.406 * 255]).cuda().view(1, 3, 1, 1)
        self.std = torch.tensor([0.229 * 255, 0.224 * 255, 0.225 * 255]).cuda().view(1, 3, 1, 1)
        self.preload()

    def preload(self):
        try:
            self.next_input, self.next_target = next(self.loader)
        except StopIteration:
            self.next_input = None
            self.next_target = None
            return
        self.next_input = self.next_input.cuda(non_blocking=True)
        self.next_target = self.next_target.cuda(non_blocking=True)
        self.next_input = self.next_input.float().sub_(self.mean).div_(self.std)

    def next(self):
        input, target = self.next_input, self.next_target
        self.preload()
        return input, target


class AverageMeter(object):
    def __init__(self):
        self.sum = self.count = self.avg = 0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def adjust_learning_rate(optimizer, epoch, step, len_epoch):
    lr = 0.05 * (0.1 ** (epoch // 2))
    if epoch < 1:
        lr = lr * float(1 + step + epoch * len_epoch) / (1. * len_epoch)
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr


def main():
    torch.manual_seed(4)
    dataset = Images(46)
    loader = torch.utils.data.DataLoader(dataset, batch_size=10, sampler=torch.utils.data.RandomSampler(dataset, True, 52),
                                         collate_fn=fast_collate)
    model = nn.DataParallel(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4)).cuda())
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for epoch in range(3):
        losses, top1 = AverageMeter(), AverageMeter()
        prefetcher = data_prefetcher(loader)
        input, target = prefetcher.next()
        i = 0
        while input is not None:
            i += 1
            adjust_learning_rate(optimizer, epoch, i, len(loader))
            output = model(input)
            loss = nn.functional.cross_entropy(output, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.update(loss.item(), input.size(0))
            top1.update((output.argmax(1) == target).float().mean().item(), input.size(0))
            input, target = prefetcher.next()
        print('Epoch: [{0}] {1} of {2} Loss {3:.5f} Prec@1 {4:.3f}'.format(epoch, i, len(loader), losses.avg, top1.avg))


if __name__ == '__main__':
    main()
