"""The same with Hugging Face Accelerate."""

import argparse

import torch
import torch.nn as nn
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

from data import images
from model import Discriminator, Generator

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.0002)
args = parser.parse_args()

accelerator = Accelerator(
    cpu=not torch.cuda.is_available(),
    dataloader_config=DataLoaderConfiguration(split_batches=True),
    kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
)
device, world = accelerator.device, accelerator.num_processes

torch.manual_seed(0)
loader = DataLoader(images(args.steps * args.batch_size), batch_size=args.batch_size, shuffle=True)
netG, netD = Generator(), Discriminator()
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=args.lr, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=args.lr, betas=(0.5, 0.999))
netG, netD, optimizerG, optimizerD, loader = accelerator.prepare(netG, netD, optimizerG, optimizerD, loader)
torch.manual_seed(accelerator.process_index)

for i, (real,) in enumerate(loader):
    netD.zero_grad()
    label = torch.full((real.size(0),), 1.0, device=device)
    errD_real = criterion(netD(real), label)
    accelerator.backward(errD_real)
    noise = torch.randn(real.size(0), 32, 1, 1, device=device)
    fake = netG(noise)
    label.fill_(0.0)
    errD_fake = criterion(netD(fake.detach()), label)
    accelerator.backward(errD_fake)
    errD = errD_real + errD_fake
    optimizerD.step()

    netG.zero_grad()
    label.fill_(1.0)
    errG = criterion(netD(fake), label)
    accelerator.backward(errG)
    optimizerG.step()
    if (i + 1) % 10 == 0:
        sums = accelerator.reduce(torch.stack([errD.detach(), errG.detach()]), "mean")
        accelerator.print("[%d/%d] Loss_D: %.4f Loss_G: %.4f" % (i + 1, len(loader), *sums.tolist()))

states = {"G": accelerator.unwrap_model(netG).state_dict(), "D": accelerator.unwrap_model(netD).state_dict()}
accelerator.save(states, "gan.pth")
accelerator.end_training()
