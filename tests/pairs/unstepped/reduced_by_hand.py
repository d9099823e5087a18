# verify: same
import os

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
x, y = torch.randn(26, 8), torch.randint(0, 3, (26,))
net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)).cuda()
for start in range(0, 26, 8):
    rows = torch.arange(start, min(start + 8, 26)).chunk(world)
    rows, count = (rows[rank] if rank < len(rows) else rows[0][:0]), sum(map(len, rows))
    loss = nn.functional.cross_entropy(net(x[rows].cuda()), y[rows].cuda(), reduction="sum") / count
    loss.backward()
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
    net.zero_grad()
dist.destroy_process_group()
