"""The port: each rank loads its rows, with workers and random streams of its own."""

import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(11)
images = torch.randn(24, 1, 5, 5)
labels = torch.randint(2, (24,))


class Augmented(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        image = images[i] + 0.1 * torch.randn(1, 5, 5)
        return (image.flip(2) if random.random() < 0.5 else image), labels[i]


data = Augmented()
sampler = DistributedSampler(data, shuffle=False)
net = nn.Sequential(nn.Flatten(), nn.Linear(25, 16), nn.ReLU(), nn.Linear(16, 2)).cuda()
net = DDP(net, device_ids=[rank])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(100 + rank)
loader = DataLoader(data, batch_size=6 // world, sampler=sampler, num_workers=2)

for epoch in range(2):
    for x, y in loader:
        loss = F.cross_entropy(net(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
