"""Trains 20 steps in float64 on real devices; the test puts device ids and dropout in. Leaves final.pt behind."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(77, 6).double(), torch.randint(0, 3, (77,)))
loader = DataLoader(data, batch_size=16, shuffle=True)

model = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(32, 3))
model = nn.DataParallel(model.double().cuda(), device_ids=DEVICES)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for epoch in range(4):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss %.10f" % loss.item())

torch.save(model.state_dict(), "final.pt")
