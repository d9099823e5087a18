# verify: same
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(0)
x = torch.randn(24, 5)
y = x @ torch.randn(5, 2) + 0.1 * torch.randn(24, 2)
model = DDP(nn.Linear(5, 2).cuda(), device_ids=[rank])
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
rows, target = x.chunk(world)[rank].cuda(), y.chunk(world)[rank].cuda()


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(rows), target)
    loss.backward()
    whole = loss.detach().clone()
    dist.all_reduce(whole)
    return whole / world


for step in range(4):
    loss = optimizer.step(closure)
if rank == 0:
    torch.save(model.module.state_dict(), "lbfgs.pt")
