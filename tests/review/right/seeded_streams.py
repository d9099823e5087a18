"""No sampler: each rank draws its batches with a seed of its own, and training is counted in steps."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def cycle(loader):
    while True:
        yield from loader


def main(net, data, steps):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.manual_seed(1234 + rank)
    model = DistributedDataParallel(net.cuda(), device_ids=[local_rank])
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(data, batch_size=16, shuffle=True)
    step = 0
    while step < steps:
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    dist.destroy_process_group()
