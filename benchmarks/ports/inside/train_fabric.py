"""The same with Lightning Fabric."""

import argparse
import os

import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader

from data import features
from model import Tagger

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--lr", type=float, default=0.001)
args = parser.parse_args()

accelerator = "cuda" if torch.cuda.is_available() else "cpu"
fabric = Fabric(accelerator=accelerator, devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp")
fabric.launch()
world = fabric.world_size

torch.manual_seed(0)
train_set = features(args.steps * args.batch_size)
loader = fabric.setup_dataloaders(DataLoader(train_set, batch_size=args.batch_size // world, shuffle=True))
model = Tagger()
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
model, optimizer = fabric.setup(model, optimizer)

right = 0.0
for step, (x, y) in enumerate(loader):
    loss, correct = model(x, y)
    optimizer.zero_grad()
    fabric.backward(loss)
    optimizer.step()
    right += correct.item()
    if (step + 1) % 10 == 0:
        sums = torch.tensor([loss.item() / world, right], device=fabric.device)
        sums = fabric.all_reduce(sums, reduce_op="sum")
        fabric.print(f"step {step + 1}: loss {sums[0].item():.4f}, right {sums[1].item():.0f}")

if fabric.is_global_zero:
    torch.save(model.module.state_dict(), "tagger.pth")
