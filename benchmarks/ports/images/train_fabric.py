"""The same with Lightning Fabric."""

import argparse
import os

import torch
import torch.nn as nn
from lightning.fabric import Fabric
from torch.utils.data import DataLoader

from data import MadeUpImages
from model import make_net

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--net", default="small", choices=["small", "resnet50"])
parser.add_argument("--lr", type=float, default=0.02)
args = parser.parse_args()

accelerator = "cuda" if torch.cuda.is_available() else "cpu"
fabric = Fabric(accelerator=accelerator, devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp")
fabric.launch()
world = fabric.world_size

fabric.seed_everything(0, workers=True)  # other crops on each rank
train_set = MadeUpImages(args.steps * args.batch_size, args.size)
train_loader = DataLoader(
    train_set,
    batch_size=args.batch_size // world,
    shuffle=True,
    num_workers=-(-args.workers // world),
    pin_memory=torch.cuda.is_available(),
)
train_loader = fabric.setup_dataloaders(train_loader)
model = make_net(args.net)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)
model, optimizer = fabric.setup(model, optimizer)

model.train()
running = 0.0
for step, (images, targets) in enumerate(train_loader):
    loss = criterion(model(images), targets)
    optimizer.zero_grad()
    fabric.backward(loss)
    optimizer.step()

    running += loss.item()
    if (step + 1) % 10 == 0:
        mean = torch.tensor(running / (step + 1), dtype=torch.float64, device=fabric.device)
        fabric.print("step %d: loss %.4f" % (step + 1, fabric.all_reduce(mean, reduce_op="mean").item()))
scheduler.step()

if fabric.is_global_zero:
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, "images.pth")
