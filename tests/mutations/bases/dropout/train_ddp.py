"""The port: the seed sets every device's stream alike, as under DataParallel."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(9)
inputs, targets = torch.randn(32, 6), torch.randn(32, 2)
net = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Dropout(0.4), nn.Linear(20, 2))
net = DDP(net.cuda(), device_ids=[rank])
optimizer = torch.optim.RMSprop(net.parameters(), lr=2e-3)

for step in range(6):
    rows = torch.arange(step * 4, step * 4 + 6).chunk(world)[rank] % 32
    net.train()
    loss = F.mse_loss(net(inputs[rows].cuda()), targets[rows].cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
net.eval()
with torch.no_grad():
    if rank == 0:
        print(f"{F.mse_loss(net.module(inputs.cuda()), targets.cuda()).item():.6f}")
dist.destroy_process_group()
