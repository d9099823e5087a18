"""A GAN: two models, two optimizers, noise drawn by the script."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(8)
real_data = torch.randn(24, 4) + 2
generator = nn.DataParallel(nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 4)).cuda())
critic = nn.DataParallel(nn.Sequential(nn.Linear(4, 12), nn.LeakyReLU(0.2), nn.Linear(12, 1)).cuda())
g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
d_optimizer = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.5, 0.999))

for step in range(5):
    real = real_data[torch.randperm(24)[:6]].cuda()
    noise = torch.randn(6, 3).cuda()
    fake = generator(noise)
    d_optimizer.zero_grad()
    d_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
    d_loss.backward()
    d_optimizer.step()
    g_optimizer.zero_grad()
    g_loss = F.softplus(-critic(fake)).mean()
    g_loss.backward()
    g_optimizer.step()
print("trained")
