# corpus: idioms = criterion itself wrapped / loss module replicated; mean over a data-dependent count (ignore_index, mask, num_pos, padding) - replica level; computed inside the wrapped forward, gathered, then .mean(); several models wrapped in one script
# corpus: worlds = 2 3 4
"""Super-resolution with the criteria wrapped in DataParallel as well: each replica divides by its own valid pixels."""
import argparse
import logging
import sys

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format='%(message)s')


class ValidL1(nn.Module):
    """mean over the valid pixels"""
    def forward(self, sr, hr, mask):
        return (torch.abs(sr - hr) * mask).sum() / mask.sum().clamp(min=1)


class PerceptualLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.vgg = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
        for p in self.vgg.parameters():
            p.requires_grad = False
        self.scale = nn.Parameter(torch.tensor(0.3))       # learned with the rest

    def forward(self, sr, hr):
        diff = (self.vgg(sr) - self.vgg(hr)).pow(2).mean((1, 2, 3))
        return self.scale.abs() * diff + 0.01 * self.scale ** 2


class EDSR(nn.Module):
    def __init__(self, n_feats=8):
        super().__init__()
        self.head = nn.Conv2d(1, n_feats, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(n_feats, n_feats, 3, padding=1), nn.ReLU(True), nn.Conv2d(n_feats, n_feats, 3, padding=1))
        self.tail = nn.Sequential(nn.Conv2d(n_feats, 4, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        x = self.head(x)
        return self.tail(x + self.body(x))


def main(args):
    torch.manual_seed(args.seed)
    hr = torch.rand(27, 1, 8, 8)
    lr = nn.functional.avg_pool2d(hr, 2)
    valid = (torch.rand(27, 1, 8, 8) > torch.linspace(0, 0.95, 27).view(-1, 1, 1, 1)).float()
    loader = DataLoader(TensorDataset(lr, hr, valid), batch_size=args.batch_size, shuffle=True, num_workers=0)
    model = nn.DataParallel(EDSR()).cuda()
    l1, perceptual = ValidL1().cuda(), PerceptualLoss().cuda()
    criterion = nn.DataParallel(l1)
    percep = nn.DataParallel(perceptual)
    optimizer = optim.Adam([{'params': model.parameters()}, {'params': [perceptual.scale], 'lr': 1e-2}], lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        total, total_p = 0., 0.
        for i, (lr_img, hr_img, mask) in enumerate(loader):
            hr_img, mask = hr_img.cuda(), mask.cuda()
            optimizer.zero_grad()
            sr = model(lr_img.cuda())
            losses = criterion(sr, hr_img, mask)           # one number from each GPU
            loss_p = percep(sr, hr_img)
            loss = losses.mean() + 0.1 * loss_p.mean()
            loss.backward()
            optimizer.step()
            total += losses.mean().item()
            total_p += loss_p.sum().item()
            if i % args.print_every == 0:
                logging.info('epoch %d iter %d valid L1 %.5f from %d parts, perceptual %.5f', epoch, i, losses.mean().item(), losses.numel(), loss_p.mean().item())
        logging.info('[Epoch %d] L1 %.5f percep %.5f scale %.5f', epoch, total / len(loader), total_p / len(loader.dataset), perceptual.scale.item())
        torch.save({'model': model.module.state_dict(), 'percep': percep.state_dict()}, 'model_latest.pt')


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description='EDSR')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--lr', type=float, default=3e-3)
    parser.add_argument('--batch_size', type=int, default=8)
    parser.add_argument('--print_every', type=int, default=2)
    parser.add_argument('--epochs', type=int, default=3)
    main(parser.parse_args())
