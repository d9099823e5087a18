"""The same with Lightning Fabric."""

import argparse
import os

import torch
import torch.nn as nn
from lightning.fabric import Fabric
from torch.utils.data import DataLoader

from data import images
from model import net

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.01)
args = parser.parse_args()

accelerator = "cuda" if torch.cuda.is_available() else "cpu"
fabric = Fabric(accelerator=accelerator, devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp")
fabric.launch()

torch.manual_seed(0)
loader = DataLoader(images(args.steps * args.batch_size), batch_size=args.batch_size // fabric.world_size)
loader = fabric.setup_dataloaders(loader)
model = net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
model, optimizer = fabric.setup(model, optimizer)

for step, (x, y) in enumerate(loader):
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    fabric.backward(loss)
    optimizer.step()
    if (step + 1) % 10 == 0:
        mean = fabric.all_reduce(loss.detach(), reduce_op="mean").item()
        fabric.print("step %d: loss %.4f" % (step + 1, mean))
