"""Images, augmented as those of ImageNet, BatchNorm, 4 loader workers: DataParallel."""

import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from data import SyntheticImages
from model import ResNet

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
train_set = SyntheticImages(args.steps * args.batch_size)
train_loader = DataLoader(
    train_set,
    batch_size=args.batch_size,
    shuffle=True,
    num_workers=args.workers,
    pin_memory=torch.cuda.is_available(),
)

model = nn.DataParallel(ResNet().to(device))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)

model.train()
running, correct, seen = 0.0, 0, 0
for step, (images, targets) in enumerate(train_loader):
    images, targets = images.to(device, non_blocking=True), targets.to(device, non_blocking=True)
    outputs = model(images)
    loss = criterion(outputs, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    running += loss.item()
    correct += outputs.argmax(1).eq(targets).sum().item()
    seen += targets.size(0)
    if (step + 1) % 10 == 0:
        print(
            "step %d: loss %.4f, accuracy %.2f%%" % (step + 1, running / (step + 1), 100.0 * correct / seen)
        )

torch.save(model.module.state_dict(), "images.pth")
