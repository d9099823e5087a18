# verify: same
# worlds: 2 3
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
x, y = torch.randn(26, 8), torch.randint(0, 3, (26,))
net = DistributedDataParallel(nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)).cuda(), device_ids=[rank])
for start in range(0, 26, 8):
    net.zero_grad()
    rows = torch.arange(start, min(start + 8, 26)).chunk(world)
    rows, count = (rows[rank] if rank < len(rows) else rows[0][:0]), sum(map(len, rows))
    loss = nn.functional.cross_entropy(net(x[rows].cuda()), y[rows].cuda(), reduction="sum") * world / count
    loss.backward()
dist.destroy_process_group()
