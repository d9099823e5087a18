"""The same, as somebody ported it by hand."""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn

from ways import write

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
net = nn.parallel.DistributedDataParallel(nn.Linear(4, 1).cuda(), device_ids=[int(os.environ["LOCAL_RANK"])])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(8, 4).chunk(world)[rank].cuda()
    optimizer.zero_grad()
    loss = net(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    loss = loss.detach().clone()
    dist.all_reduce(loss)
    if rank == 0:
        print(step, round(loss.item() / world, 4))
if rank == 0:
    write(net.module, sys.argv[1:])
dist.barrier()
dist.destroy_process_group()
