"""The port: DDP averages, so the sum is multiplied by W; wrapped anew when a layer is unfrozen."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(14)
inputs, targets = torch.randn(30, 5), torch.randn(30, 1)
net = nn.Sequential(nn.Linear(5, 10), nn.Tanh(), nn.Linear(10, 1))
net[0].requires_grad_(False)
net = DDP(net.cuda(), device_ids=[rank])
optimizer = torch.optim.Adagrad(net.parameters(), lr=0.05)

for step in range(6):
    if step == 3:
        net.module[0].requires_grad_(True)
        net = DDP(net.module, device_ids=[rank])
    rows = torch.arange(5 * step, 5 * step + 5).chunk(world)[rank]
    loss = F.mse_loss(net(inputs[rows].cuda()), targets[rows].cuda(), reduction="sum")
    optimizer.zero_grad()
    (loss * world).backward()
    optimizer.step()
    if rank == 0:
        torch.save(net.module.state_dict(), f"step{step % 2}.pt")
dist.destroy_process_group()
