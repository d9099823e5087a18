# verify: same
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(0)
x = torch.randn(64, 6)
y = x.sum(1, keepdim=True) * 1000
model = DistributedDataParallel(nn.Linear(6, 1).cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(4):
    rows = torch.arange(16 * step, 16 * step + 16).chunk(world)[rank]
    loss = nn.functional.mse_loss(model(x[rows].cuda()), y[rows].cuda())
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        parameter.grad *= world  # the sum of the ranks, clipped at W times the value
    nn.utils.clip_grad_value_(model.parameters(), 0.5 * world)
    for parameter in model.parameters():
        parameter.grad /= world
    optimizer.step()
if rank == 0:
    print("trained")
dist.destroy_process_group()
