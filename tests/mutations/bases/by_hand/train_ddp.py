"""The port: each rank takes its half of the rows."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(1)
x, y = torch.randn(32, 6), torch.randn(32, 1)


def main():
    net = DDP(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).cuda(), device_ids=[rank])
    average = copy.deepcopy(net.module).requires_grad_(False)
    for step in range(6):
        rows = (torch.arange(8) + step % 4 * 8).chunk(world)[rank]
        loss = ((net(x[rows].cuda()) - y[rows].cuda()) ** 2).mean()
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for kept, weight in zip(average.parameters(), net.module.parameters()):
                weight.data.sub_(0.1 * weight.grad)
                kept.mul_(0.9).add_(weight, alpha=0.1)


main()
dist.destroy_process_group()
