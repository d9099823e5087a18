"""Automatic mixed precision: autocast and a GradScaler, gradients unscaled and clipped."""
import torch
import torch.nn as nn

torch.manual_seed(0)
x, y = torch.randn(32, 8), torch.randn(32, 3)
model = nn.DataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
for step in range(8):
    rows, target = x[step % 4 * 8:step % 4 * 8 + 8].cuda(), y[step % 4 * 8:step % 4 * 8 + 8].cuda()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(rows).float(), target)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
torch.save({"model": model.module.state_dict(), "scaler": scaler.state_dict()}, "amp.pt")
