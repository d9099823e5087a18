"""The port by hand."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import images
from model import net

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.01)
args = parser.parse_args()

local_rank = int(os.environ["LOCAL_RANK"])
use_cuda = torch.cuda.is_available()
if use_cuda:
    torch.cuda.set_device(local_rank)
dist.init_process_group("nccl" if use_cuda else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")

torch.manual_seed(0)
train_set = images(args.steps * args.batch_size)
loader = DataLoader(
    train_set, batch_size=args.batch_size // world, sampler=DistributedSampler(train_set, shuffle=False)
)
model = DistributedDataParallel(net().to(device), device_ids=[local_rank] if use_cuda else None)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

for step, (x, y) in enumerate(loader):
    x, y = x.to(device), y.to(device)
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if (step + 1) % 10 == 0:
        mean = loss.detach() / world
        dist.reduce(mean, 0)
        if rank == 0:
            print("step %d: loss %.4f" % (step + 1, mean.item()))
dist.destroy_process_group()
