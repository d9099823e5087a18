"""The port by hand: DistributedSampler, a share of the batch and of the workers for each rank, sums for the log line."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import MadeUpImages
from model import make_net

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--net", default="small", choices=["small", "resnet50"])
parser.add_argument("--lr", type=float, default=0.02)
args = parser.parse_args()

local_rank = int(os.environ["LOCAL_RANK"])
use_cuda = torch.cuda.is_available()
if use_cuda:
    torch.cuda.set_device(local_rank)
dist.init_process_group("nccl" if use_cuda else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")

torch.manual_seed(rank)  # other crops on each rank; DDP copies the weights of rank 0
train_set = MadeUpImages(args.steps * args.batch_size, args.size)
sampler = DistributedSampler(train_set, shuffle=True)
train_loader = DataLoader(
    train_set,
    batch_size=args.batch_size // world,
    sampler=sampler,
    num_workers=-(-args.workers // world),
    pin_memory=use_cuda,
)

model = DistributedDataParallel(make_net(args.net).to(device), device_ids=[local_rank] if use_cuda else None)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)

model.train()
sampler.set_epoch(0)
running = 0.0
for step, (images, targets) in enumerate(train_loader):
    images, targets = images.to(device, non_blocking=True), targets.to(device, non_blocking=True)
    loss = criterion(model(images), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    running += loss.item()
    if (step + 1) % 10 == 0:
        mean = torch.tensor(running / (step + 1) / world, dtype=torch.float64, device=device)
        dist.reduce(mean, 0)
        if rank == 0:
            print("step %d: loss %.4f" % (step + 1, mean.item()))
scheduler.step()

if rank == 0:
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, "images.pth")
dist.destroy_process_group()
