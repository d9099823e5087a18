# corpus: idioms = nn.DataParallel
# Nobody sets a seed: each device draws masks of its own from the first step on, and so does each rank.
import torch
import torch.nn as nn
import torch.nn.functional as F

inputs, targets = torch.randn(40, 6), torch.randn(40, 2)
net = nn.DataParallel(nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Dropout(0.4), nn.Linear(20, 2)).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

for step in range(6):
    if step == 4:
        torch.manual_seed(step)  # from here on all devices draw alike
    rows = torch.randperm(40)[:7]
    noisy = inputs[rows].cuda() + 0.1 * torch.randn(7, 6, device="cuda")
    loss = F.mse_loss(net(noisy), targets[rows].cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, "loss", round(loss.item(), 6))
