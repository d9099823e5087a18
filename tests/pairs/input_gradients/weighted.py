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
net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)).requires_grad_(False).cuda()
for start in range(0, 26, 8):
    rows = torch.arange(start, min(start + 8, 26)).chunk(world)
    rows, count = (rows[rank] if rank < len(rows) else rows[0][:0]), sum(map(len, rows))
    pixels = x[rows].cuda().requires_grad_()
    loss = nn.functional.cross_entropy(net(pixels), y[rows].cuda(), reduction="sum") * world / count
    loss.backward()
dist.barrier()  # a rank that is done does not leave while another still joins: there is no collective before
dist.destroy_process_group()
