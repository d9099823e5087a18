# corpus: idioms = torch GradScaler/autocast; clip_grad; EMA / second copy of weights; lr_scheduler; mean over a data-dependent count - full batch level (after gather); tqdm/progress bar
# corpus: worlds = 2 4
# corpus: helpers = WholeBatchInParts
"""Images made of images: autocast, GradScaler, clipping, warm-up, EMA, a loss with a data-dependent count."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, Dataset


class Keypoints(Dataset):
    def __init__(self, n=44):
        g = torch.Generator().manual_seed(2)
        self.images = torch.randn(n, 1, 8, 8, generator=g)
        self.heatmaps = torch.rand(n, 2, 8, 8, generator=g)
        self.visible = torch.randint(0, 2, (n, 2), generator=g).float()
        self.visible[::7] = 0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.heatmaps[i], self.visible[i]


class Hourglass(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.up = nn.ConvTranspose2d(6, 2, 4, stride=2, padding=1)

    @autocast()
    def forward(self, x):
        return self.up(self.down(x)).float()


class ModelEMA(object):
    def __init__(self, decay):
        self.decay, self.shadow = decay, None

    def update(self, state):
        if self.shadow is None:
            self.shadow = {k: v.clone() for k, v in state.items()}
        for k, v in state.items():
            if v.dtype.is_floating_point:
                self.shadow[k].mul_(self.decay).add_(v, alpha=1 - self.decay)


def train_one_epoch(epoch, loader, model, optimizer, scaler, scheduler, ema, device, args):
    model.train()
    running = 0.0
    for step, (images, heatmaps, visible) in enumerate(loader):
        images = images.to(device, non_blocking=True)
        heatmaps, visible = heatmaps.to(device), visible.to(device)
        with autocast(enabled=args.amp):
            pred = model(images)
            per_joint = F.mse_loss(pred, heatmaps, reduction='none').mean((2, 3))
            loss = (per_joint * visible).sum() / visible.sum().clamp(min=1)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        ema.update(model.state_dict())
        running += loss.item() * images.size(0)
        print('%d/%d loss %.5f norm %.4f visible %d lr %.5f scale %.0f' % (
            epoch, step, loss.item(), norm.item(), int(visible.sum()), optimizer.param_groups[0]['lr'], scaler.get_scale()))
    return running / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--amp', action='store_true', default=True)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device('cuda')
    loader = DataLoader(Keypoints(), batch_size=12, shuffle=True)
    model = Hourglass().to(device)
    model = nn.DataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=args.epochs * len(loader), pct_start=0.25)
    scaler = GradScaler(init_scale=2. ** 14, growth_interval=4)
    ema = ModelEMA(0.9)
    for epoch in range(args.epochs):
        loss = train_one_epoch(epoch, loader, model, optimizer, scaler, scheduler, ema, device, args)
        print('epoch %d: %.5f' % (epoch, loss))
    torch.save({'model': model.module.state_dict(), 'ema': ema.shadow, 'scaler': scaler.state_dict()}, 'last.pt')


if __name__ == '__main__':
    main()
