"""The port by hand: each rank takes its rows of the noise; D sums two backward passes, and syncs in the second alone.

DDP's forward copies rank 0's buffers into BatchNorm in each of D's three forwards, which autograd must not see change
under it (pytorch/pytorch#22095): so D's copies are left out, as the usual remedy has it, and its statistics are each rank's own.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import images
from model import Discriminator, Generator

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.0002)
args = parser.parse_args()

local_rank = int(os.environ["LOCAL_RANK"])
use_cuda = torch.cuda.is_available()
if use_cuda:
    torch.cuda.set_device(local_rank)
dist.init_process_group("nccl" if use_cuda else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")

torch.manual_seed(0)
train_set = images(args.steps * args.batch_size)
loader = DataLoader(train_set, batch_size=args.batch_size // world, sampler=DistributedSampler(train_set))
device_ids = [local_rank] if use_cuda else None
netG = DistributedDataParallel(Generator().to(device), device_ids=device_ids)
netD = DistributedDataParallel(Discriminator().to(device), device_ids=device_ids, broadcast_buffers=False)
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=args.lr, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=args.lr, betas=(0.5, 0.999))

for i, (real,) in enumerate(loader):
    real = real.to(device)
    netD.zero_grad()
    label = torch.full((real.size(0),), 1.0, device=device)
    with netD.no_sync():
        errD_real = criterion(netD(real), label)
        errD_real.backward()
    noise = torch.randn(args.batch_size, 32, 1, 1, device=device).chunk(world)[rank]
    fake = netG(noise)
    label.fill_(0.0)
    errD_fake = criterion(netD(fake.detach()), label)
    errD_fake.backward()
    errD = errD_real + errD_fake
    optimizerD.step()

    netG.zero_grad()
    label.fill_(1.0)
    for parameter in netD.parameters():  # G's step needs no gradients of D, and no rank waits for them
        parameter.requires_grad_(False)
    errG = criterion(netD.module(fake), label)
    errG.backward()
    for parameter in netD.parameters():
        parameter.requires_grad_(True)
    optimizerG.step()
    if (i + 1) % 10 == 0:
        sums = torch.stack([errD.detach(), errG.detach()]) / world
        dist.reduce(sums, 0)
        if rank == 0:
            print("[%d/%d] Loss_D: %.4f Loss_G: %.4f" % (i + 1, len(loader), *sums.tolist()))

if rank == 0:
    torch.save({"G": netG.module.state_dict(), "D": netD.module.state_dict()}, "gan.pth")
dist.destroy_process_group()
