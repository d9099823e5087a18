# corpus: idioms = DataLoader subclass or own class called DataLoader; batch_sampler=; custom sampler class; drop_last; len(loader) used as divisor / schedule (breaks when the loader shrinks); lr_scheduler; batch size multiplied by the number of GPUs in the script; EMA / second copy of weights; shuffle literal True
"""Image classification with a loader that never restarts its iterator; global batch from the number of GPUs."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.data

torch.manual_seed(2020)


class InfiniteDataLoader(torch.utils.data.dataloader.DataLoader):
    """Uses the same iterator for ever."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, 'batch_sampler', _RepeatSampler(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for i in range(len(self)):
            yield next(self.iterator)


class _RepeatSampler(object):
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


class Letterbox(torch.utils.data.Dataset):
    def __init__(self, n):
        self.x, self.y = torch.randn(n, 3, 8, 8), torch.arange(n) % 4
        self.x += 0.3 * self.y.view(-1, 1, 1, 1)
        self.n_loaded = 0

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        self.n_loaded += 1
        return self.x[i], int(self.y[i]), 'img_%03d.jpg' % i


class ModelEMA:
    def __init__(self, model, decay=0.99):
        self.ema = {k: v.clone() for k, v in model.state_dict().items()}
        self.decay, self.updates = lambda x: decay * (1 - math.exp(-x / 10)), 0

    def update(self, model):
        self.updates += 1
        d = self.decay(self.updates)
        for k, v in model.state_dict().items():
            if v.dtype.is_floating_point:
                self.ema[k] = self.ema[k] * d + (1. - d) * v.detach()


def train(per_gpu=4, epochs=3, nbs=16):
    device = torch.device('cuda:0')
    ngpu = torch.cuda.device_count()
    batch_size = per_gpu * ngpu
    dataset = Letterbox(30)
    dataloader = InfiniteDataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=0)
    nb = len(dataloader)
    accumulate = max(round(nbs / batch_size), 1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.SiLU(), nn.Flatten(), nn.Linear(72, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * batch_size * accumulate / nbs, momentum=0.9, nesterov=True)
    lf = lambda x: ((1 + math.cos(x * math.pi / epochs)) / 2) * 0.8 + 0.2
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=lf)
    ema = ModelEMA(model)
    if ngpu > 1:
        model = torch.nn.DataParallel(model)
    for epoch in range(epochs):
        model.train()
        mloss, names = torch.zeros(1, device=device), []
        optimizer.zero_grad()
        for i, (imgs, targets, paths) in enumerate(dataloader):
            ni = i + nb * epoch
            imgs, targets = imgs.to(device, non_blocking=True).float(), targets.to(device)
            loss = F.cross_entropy(model(imgs), targets) * len(imgs)
            loss.backward()
            if ni % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
                ema.update(model.module if hasattr(model, 'module') else model)
            mloss = (mloss * i + loss.detach() / len(imgs)) / (i + 1)
            names += paths
        scheduler.step()
        print('%g/%g' % (epoch, epochs - 1), 'loss %.5f' % mloss.item(), 'first', names[0], 'of', len(names), 'loaded', dataset.n_loaded)
    torch.save({'epoch': epoch, 'ema': ema.ema, 'updates': ema.updates}, 'last.pt')


if __name__ == '__main__':
    train()
