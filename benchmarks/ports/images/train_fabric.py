"""The same with Lightning Fabric."""

import argparse
import os

import torch
import torch.nn as nn
from lightning.fabric import Fabric
from torch.utils.data import DataLoader

from data import SyntheticImages
from model import ResNet

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()

accelerator = "cuda" if torch.cuda.is_available() else "cpu"
fabric = Fabric(accelerator=accelerator, devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp")
fabric.launch()
world = fabric.world_size

fabric.seed_everything(0, workers=True)  # other crops on each rank
train_set = SyntheticImages(args.steps * args.batch_size)
train_loader = DataLoader(
    train_set,
    batch_size=args.batch_size // world,
    shuffle=True,
    num_workers=-(-args.workers // world),
    pin_memory=torch.cuda.is_available(),
)
train_loader = fabric.setup_dataloaders(train_loader)
model = ResNet()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
model, optimizer = fabric.setup(model, optimizer)

model.train()
running, correct, seen = 0.0, 0, 0
for step, (images, targets) in enumerate(train_loader):
    outputs = model(images)
    loss = criterion(outputs, targets)
    optimizer.zero_grad()
    fabric.backward(loss)
    optimizer.step()

    running += loss.item()
    correct += outputs.argmax(1).eq(targets).sum().item()
    seen += targets.size(0)
    if (step + 1) % 10 == 0:
        sums = torch.tensor([running / world, correct, seen], dtype=torch.float64, device=fabric.device)
        total, right, rows = fabric.all_reduce(sums, reduce_op="sum").tolist()
        fabric.print(
            "step %d: loss %.4f, accuracy %.2f%%" % (step + 1, total / (step + 1), 100.0 * right / rows)
        )

if fabric.is_global_zero:
    torch.save(model.module.state_dict(), "images.pth")
