"""Gradients are clipped by value, and all of them are larger: what is left of them is their sign."""
import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(64, 6)
y = x.sum(1, keepdim=True) * 1000
model = nn.DataParallel(nn.Linear(6, 1).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(4):
    rows = torch.arange(16 * step, 16 * step + 16)
    loss = nn.functional.mse_loss(model(x[rows].cuda()), y[rows].cuda())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
print("trained")
