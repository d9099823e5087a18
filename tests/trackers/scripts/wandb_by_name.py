"""W&B and json, imported by names in a loop, and found among the modules that are loaded."""

import importlib
import sys

import torch
import torch.nn as nn

modules = {}
for name in ("json", "wandb"):
    modules[name] = importlib.import_module(name)

torch.manual_seed(2)
net = nn.DataParallel(nn.Linear(5, 1).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
modules["wandb"].init(project="sums", config={"lr": 0.05})
for _ in range(4):
    x = torch.randn(6, 5)
    loss = (net(x.cuda()) - x.sum(1, keepdim=True).cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    sys.modules["wandb"].log({"loss": loss.item()})
print(modules["json"].dumps({"loss": round(loss.item(), 6), "run": modules["wandb"].run.name}))
