"""The same with Lightning Fabric."""

import argparse
import os

import torch
import torch.nn as nn
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy
from torch.utils.data import DataLoader

from data import images
from model import Discriminator, Generator

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.0002)
args = parser.parse_args()

accelerator = "cuda" if torch.cuda.is_available() else "cpu"
fabric = Fabric(
    accelerator=accelerator,
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy=DDPStrategy(broadcast_buffers=False),
)
fabric.launch()
device, world = fabric.device, fabric.world_size

torch.manual_seed(0)
loader = DataLoader(images(args.steps * args.batch_size), batch_size=args.batch_size // world, shuffle=True)
loader = fabric.setup_dataloaders(loader)
netG, netD = Generator(), Discriminator()
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=args.lr, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=args.lr, betas=(0.5, 0.999))
netG, optimizerG = fabric.setup(netG, optimizerG)
netD, optimizerD = fabric.setup(netD, optimizerD)
torch.manual_seed(fabric.global_rank)

for i, (real,) in enumerate(loader):
    netD.zero_grad()
    label = torch.full((real.size(0),), 1.0, device=device)
    errD_real = criterion(netD(real), label)
    fabric.backward(errD_real)
    noise = torch.randn(real.size(0), 32, 1, 1, device=device)
    fake = netG(noise)
    label.fill_(0.0)
    errD_fake = criterion(netD(fake.detach()), label)
    fabric.backward(errD_fake)
    errD = errD_real + errD_fake
    optimizerD.step()

    netG.zero_grad()
    label.fill_(1.0)
    errG = criterion(netD(fake), label)
    fabric.backward(errG)
    optimizerG.step()
    if (i + 1) % 10 == 0:
        sums = fabric.all_reduce(torch.stack([errD.detach(), errG.detach()]), reduce_op="mean")
        fabric.print("[%d/%d] Loss_D: %.4f Loss_G: %.4f" % (i + 1, len(loader), *sums.tolist()))

if fabric.is_global_zero:
    torch.save({"G": netG.module.state_dict(), "D": netD.module.state_dict()}, "gan.pth")
