# corpus: idioms = nn.DataParallel; device_ids literal/comprehension list; device_ids names a single GPU (DP is a no-op used for the "module." prefix)
# corpus: answer = 0 DDP201:7
"""Denoising on one GPU; DataParallel gives the checkpoint its prefix."""
import torch
import torch.nn as nn

model = nn.DataParallel(nn.Conv2d(1, 1, 3, padding=1), device_ids=[0]).cuda()
criterion = nn.MSELoss(reduction='sum')
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    clean = torch.randn(4, 1, 8, 8).cuda()
    noise = 0.1 * torch.randn_like(clean)
    loss = criterion(model(clean + noise), noise) / 8
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), 'net.pth')
