"""A GAN: two nets, two optimizers: DataParallel."""

import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from data import images
from model import Discriminator, Generator

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.0002)
args = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(images(args.steps * args.batch_size), batch_size=args.batch_size, shuffle=True)
netG = nn.DataParallel(Generator().to(device))
netD = nn.DataParallel(Discriminator().to(device))
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=args.lr, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=args.lr, betas=(0.5, 0.999))

for i, (real,) in enumerate(loader):
    # (1) update D: real, then fake
    real = real.to(device)
    netD.zero_grad()
    label = torch.full((real.size(0),), 1.0, device=device)
    errD_real = criterion(netD(real), label)
    errD_real.backward()
    noise = torch.randn(real.size(0), 32, 1, 1, device=device)
    fake = netG(noise)
    label.fill_(0.0)
    errD_fake = criterion(netD(fake.detach()), label)
    errD_fake.backward()
    errD = errD_real + errD_fake
    optimizerD.step()

    # (2) update G
    netG.zero_grad()
    label.fill_(1.0)
    errG = criterion(netD(fake), label)
    errG.backward()
    optimizerG.step()
    if (i + 1) % 10 == 0:
        print("[%d/%d] Loss_D: %.4f Loss_G: %.4f" % (i + 1, len(loader), errD.item(), errG.item()))

torch.save({"G": netG.module.state_dict(), "D": netD.module.state_dict()}, "gan.pth")
