"""Trains on the CPU and ends in the way its argument says: return, raise, exit, early (out of the loop), wait."""

import sys
import time

import torch
import torch.nn as nn

how = sys.argv[1]
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.DataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(4):
    loss = model(torch.randn(8, 4, device=device)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, flush=True)
    if step == 2 and how == "early":
        break
    if step == 2 and how == "raise":
        raise ValueError("as asked")
    if step == 2 and how == "exit":
        sys.exit(5)
    if step == 2 and how == "wait":
        time.sleep(600)
