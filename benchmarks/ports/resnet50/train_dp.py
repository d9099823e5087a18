"""ResNet-50 on made-up images: DataParallel."""

import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from data import made_up_images
from model import ResNet50

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--width", type=int, default=64)
args = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
train_loader = DataLoader(made_up_images(4 * args.batch_size, args.size), batch_size=args.batch_size)
model = nn.DataParallel(ResNet50(args.width).to(device))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

step = 0
while step < args.steps:
    for images, targets in train_loader:
        loss = criterion(model(images.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step == args.steps:
            break
print("loss %.4f" % loss.item())
