"""The port: outputs are gathered, each rank computes the whole loss; its own part carries the gradient, times W."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(13)
first = torch.randn(32, 6)
second = first + 0.2 * torch.randn(32, 6)
net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 4)).cuda()
net = DDP(net, device_ids=[rank])
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)


def gather(mine):
    parts = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(parts, mine.detach())
    parts[rank] = mine
    return torch.cat(parts)


for step in range(5):
    rows = torch.randperm(32)[:6].chunk(world)[rank]
    both = net(torch.cat([first[rows], second[rows]]).cuda())
    a, b = F.normalize(both[: len(rows)]), F.normalize(both[len(rows) :])
    a, b = gather(a), gather(b)
    loss = F.cross_entropy(a @ b.T / 0.1, torch.arange(6).cuda())
    optimizer.zero_grad()
    (loss * world).backward()
    optimizer.step()
    if rank == 0:
        print(f"{loss.item():.6f}")
dist.destroy_process_group()
