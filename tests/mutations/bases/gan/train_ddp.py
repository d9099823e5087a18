"""The port: both models are wrapped, noise is drawn whole and cut."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(8)
real_data = torch.randn(24, 4) + 2
generator = DDP(nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 4)).cuda(), device_ids=[rank])
critic = DDP(nn.Sequential(nn.Linear(4, 12), nn.LeakyReLU(0.2), nn.Linear(12, 1)).cuda(), device_ids=[rank])
g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
d_optimizer = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.5, 0.999))

for step in range(5):
    real = real_data[torch.randperm(24)[:6]].chunk(world)[rank].cuda()
    noise = torch.randn(6, 3).chunk(world)[rank].cuda()
    fake = generator(noise)
    d_optimizer.zero_grad()
    d_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
    d_loss.backward()
    d_optimizer.step()
    g_optimizer.zero_grad()
    g_loss = F.softplus(-critic(fake)).mean()
    g_loss.backward()
    g_optimizer.step()
if rank == 0:
    print("trained")
dist.destroy_process_group()
