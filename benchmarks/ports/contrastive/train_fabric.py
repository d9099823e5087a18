"""The same with Lightning Fabric, whose all_gather has gradients: each rank's is summed over ranks, then averaged."""

import argparse
import os

import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader

from data import pairs
from model import Encoder, nt_xent

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()

accelerator = "cuda" if torch.cuda.is_available() else "cpu"
fabric = Fabric(accelerator=accelerator, devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp")
fabric.launch()
world = fabric.world_size

torch.manual_seed(0)
loader = DataLoader(
    pairs(args.steps * args.batch_size), batch_size=args.batch_size // world, shuffle=False, drop_last=True
)
loader = fabric.setup_dataloaders(loader)
model = Encoder()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
model, optimizer = fabric.setup(model, optimizer)

model.train()
for step, (x1, x2) in enumerate(loader):
    z1, z2 = model(torch.cat([x1, x2], dim=0)).chunk(2)
    both = fabric.all_gather(torch.stack([z1, z2], dim=1), sync_grads=True).flatten(0, 1)
    loss = nt_xent(both[:, 0], both[:, 1])
    optimizer.zero_grad()
    fabric.backward(loss)
    optimizer.step()
    if (step + 1) % 10 == 0 and fabric.is_global_zero:
        print("step %d: loss %.4f" % (step + 1, loss.item()))

if fabric.is_global_zero:
    torch.save(model.module.state_dict(), "encoder.pth")
