"""A net of 53 tiny layers: DataParallel."""

import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from data import images
from model import net

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.01)
args = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(images(args.steps * args.batch_size), batch_size=args.batch_size)
model = nn.DataParallel(net().to(device))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

for step, (x, y) in enumerate(loader):
    x, y = x.to(device), y.to(device)
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if (step + 1) % 10 == 0:
        print("step %d: loss %.4f" % (step + 1, loss.item()))
