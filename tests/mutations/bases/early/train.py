"""The evaluation decides: plateau schedule, best checkpoint, early stopping."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(10)
x = torch.randn(36, 5)
y = x.sum(1, keepdim=True) + torch.linspace(0, 8, 36)[:, None]
train = DataLoader(TensorDataset(x[:24], y[:24]), batch_size=12, shuffle=True)
test_x, test_y = x[24:35], y[24:35]
net = nn.DataParallel(nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 1)).cuda())
optimizer = torch.optim.Adam(net.parameters(), lr=0.2)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
best, since = float("inf"), 0

for epoch in range(8):
    for a, b in train:
        loss = F.mse_loss(net(a.cuda()), b.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        score = F.mse_loss(net(test_x.cuda()), test_y.cuda()).item()
    scheduler.step(score)
    print(f"epoch {epoch}: {score:.6f}")
    if score < best:
        best, since = score, 0
        torch.save({"epoch": epoch, "net": net.module.state_dict()}, "best.pt")
    else:
        since += 1
        if since == 2:
            print("no better for two epochs")
            break
