"""Images of ImageNet's size, augmented by four workers: DataParallel."""

import argparse

import torch
import torch.nn as nn
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

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
train_set = MadeUpImages(args.steps * args.batch_size, args.size)
train_loader = DataLoader(
    train_set,
    batch_size=args.batch_size,
    shuffle=True,
    num_workers=args.workers,
    pin_memory=torch.cuda.is_available(),
)

model = nn.DataParallel(make_net(args.net).to(device))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)

model.train()
running = 0.0
for step, (images, targets) in enumerate(train_loader):
    images, targets = images.to(device, non_blocking=True), targets.to(device, non_blocking=True)
    loss = criterion(model(images), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    running += loss.item()
    if (step + 1) % 10 == 0:
        print("step %d: loss %.4f" % (step + 1, running / (step + 1)))
scheduler.step()

torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, "images.pth")
