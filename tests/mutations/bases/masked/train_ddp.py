"""The port: sums on each rank, over the words of all ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(6)
words = torch.randint(1, 20, (30, 7))
lengths = torch.randint(1, 8, (30,))
tags = words % 4
tags[torch.arange(7)[None, :] >= lengths[:, None]] = -100
loader = DataLoader(TensorDataset(words, tags), batch_size=8, shuffle=True)
net = nn.Sequential(nn.Embedding(20, 10), nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 4))
net = DDP(net.cuda(), device_ids=[rank])
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        x, y = x.chunk(world)[rank].cuda(), y.chunk(world)[rank].cuda()
        total = F.cross_entropy(net(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum")
        count = (y != -100).sum()
        dist.all_reduce(count)
        loss = total / count
        optimizer.zero_grad()
        (loss * world).backward()
        optimizer.step()
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        if rank == 0:
            print(f"epoch {epoch}, step {step}: {whole.item():.6f}")
dist.destroy_process_group()
