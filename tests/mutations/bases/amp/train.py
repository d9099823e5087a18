"""Mixed precision: autocast, GradScaler, gradients unscaled and clipped; a step in between overflows."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(5)
images = torch.randn(40, 12)
labels = torch.randint(3, (40,))
net = nn.DataParallel(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)).cuda())
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=3)

for step in range(7):
    rows = torch.randperm(40)[:6]
    x, y = images[rows].cuda(), labels[rows].cuda()
    weight = float("inf") if step == 3 else 1.0
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(net(x), y)
    optimizer.zero_grad()
    scaler.scale(loss * weight).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 0.3)
    scaler.step(optimizer)
    scaler.update()
print(f"scale {scaler.get_scale():g}")
