"""The port by the book: DistributedSampler, set_epoch, a batch size for each rank."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(7)
data = TensorDataset(torch.randn(24, 6), torch.randn(24, 2))
sampler = DistributedSampler(data, seed=0)
loader = DataLoader(data, batch_size=6 // world, sampler=sampler)
net = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2)).cuda()
net = DDP(net, device_ids=[rank])
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = F.mse_loss(net(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
if rank == 0:
    print("done")
dist.destroy_process_group()
