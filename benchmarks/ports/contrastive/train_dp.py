"""SimCLR: every row of the batch is a negative of every other: DataParallel."""

import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from data import pairs
from model import Encoder, nt_xent

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(
    pairs(args.steps * args.batch_size), batch_size=args.batch_size, shuffle=False, drop_last=True
)
model = nn.DataParallel(Encoder().to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

model.train()
for step, (x1, x2) in enumerate(loader):
    x1, x2 = x1.to(device), x2.to(device)
    z1, z2 = model(torch.cat([x1, x2], dim=0)).chunk(2)
    loss = nt_xent(z1, z2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if (step + 1) % 10 == 0:
        print("step %d: loss %.4f" % (step + 1, loss.item()))

torch.save(model.module.state_dict(), "encoder.pth")
