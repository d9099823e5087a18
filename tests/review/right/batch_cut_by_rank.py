"""Every rank loads the whole batch, in the same order, and takes its rows of it."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)

from project import data, net  # noqa: E402

torch.manual_seed(0)
model = DistributedDataParallel(net.cuda(), device_ids=[device])
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
for _ in range(10):
    for x, y in loader:
        x, y = x.chunk(world)[rank].cuda(), y.chunk(world)[rank].cuda()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
