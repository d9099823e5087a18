"""The port: no_sync until the last micro-batch."""

import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(4)
data = TensorDataset(torch.randn(72, 8), torch.randn(72, 1))
loader = DataLoader(data, batch_size=6, shuffle=True)
net = DDP(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
accumulate = 4

for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % accumulate == 0
        x, y = x.chunk(world)[rank].cuda(), y.chunk(world)[rank].cuda()
        with contextlib.nullcontext() if last else net.no_sync():
            loss = F.mse_loss(net(x), y) / accumulate
            loss.backward()
        if last:
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    if rank == 0:
        print(f"epoch {epoch}: lr {scheduler.get_last_lr()[0]:.4f}")
if rank == 0:
    torch.save(net.module.state_dict(), "net.pt")
dist.destroy_process_group()
