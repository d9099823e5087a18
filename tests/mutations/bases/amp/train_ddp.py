"""The port: every rank has a scaler; the gradients that it looks at are the averaged ones."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(5)
images = torch.randn(40, 12)
labels = torch.randint(3, (40,))
net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)).cuda()
net = DDP(net, device_ids=[rank])
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=3)

for step in range(7):
    rows = torch.randperm(40)[:6].chunk(world)[rank]
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
if rank == 0:
    print(f"scale {scaler.get_scale():g}")
dist.destroy_process_group()
