"""The loss is computed inside forward, by each replica: DataParallel."""

import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from data import features
from model import Tagger

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--lr", type=float, default=0.001)
args = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
train_set = features(args.steps * args.batch_size)
loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
model = nn.DataParallel(Tagger().to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

right = 0.0
for step, (x, y) in enumerate(loader):
    x, y = x.to(device), y.to(device)
    loss, correct = model(x, y)
    loss = loss.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    right += correct.sum().item()
    if (step + 1) % 10 == 0:
        print(f"step {step + 1}: loss {loss.item():.4f}, right {right:.0f}")

torch.save(model.module.state_dict(), "tagger.pth")
