import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
features = torch.randn(50, 8)
loader = DataLoader(TensorDataset(features, features[:, :1] ** 2), batch_size=12)

net = nn.DataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

start = 0
if args.resume and os.path.exists("last.pt"):
    saved = torch.load("last.pt", map_location=device)
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    start = saved["epoch"] + 1
    print("going on with epoch", start)

for epoch in range(start, args.epochs):
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(net(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    state = {"epoch": epoch, "net": net.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**state, "scheduler": scheduler.state_dict()}, "last.pt")
    print("epoch %d: loss %.4f" % (epoch, loss.item()))
