"""The port: the same draws on every rank, chunks of them, losses weighted by rows, the centre from all ranks' rows."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, TensorDataset, WeightedRandomSampler

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(11)
data = TensorDataset(torch.randn(32, 6), torch.randn(32, 4))
sampler = WeightedRandomSampler(torch.linspace(0.1, 2.0, 32) ** 3, 30)
loader = DataLoader(data, batch_sampler=BatchSampler(sampler, 8, drop_last=False))


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.LayerNorm(12))
        self.head = nn.Linear(12, 4)
        self.register_buffer("center", torch.zeros(4))

    def forward(self, x):
        return self.head(self.body(x))


net = DDP(Student().cuda(), device_ids=[rank])
average = copy.deepcopy(net.module)
groups = [{"params": net.module.body.parameters(), "lr": 2e-3}, {"params": net.module.head.parameters()}]
optimizer = torch.optim.Adam(groups, lr=1e-2)

for epoch in range(2):
    for x, y in loader:
        rows = len(x)
        x, y = x.chunk(world)[rank].cuda(), y.chunk(world)[rank].cuda()
        out = net(x)
        loss = (out - net.module.center - y).pow(2).mean()
        optimizer.zero_grad()
        (loss * len(x) * world / rows).backward()
        optimizer.step()
        with torch.no_grad():
            mean = out.sum(0) / rows
            dist.all_reduce(mean)
            net.module.center.mul_(0.9).add_(mean, alpha=0.1)
            for old, new in zip(average.parameters(), net.module.parameters()):
                old.mul_(0.9).add_(new, alpha=0.1)
if rank == 0:
    print("done")
    torch.save({"student": net.module.state_dict(), "teacher": average.state_dict()}, "net.pt")
dist.destroy_process_group()
