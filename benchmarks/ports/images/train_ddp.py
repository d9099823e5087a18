"""The port by hand: DistributedSampler, a share of the batch and of the workers for each rank, sums for the log line."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import SyntheticImages
from model import ResNet

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()

local_rank = int(os.environ["LOCAL_RANK"])
use_cuda = torch.cuda.is_available()
if use_cuda:
    torch.cuda.set_device(local_rank)
dist.init_process_group("nccl" if use_cuda else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")

torch.manual_seed(rank)  # other crops on each rank; DDP copies the weights of rank 0
train_set = SyntheticImages(args.steps * args.batch_size)
sampler = DistributedSampler(train_set, shuffle=True)
train_loader = DataLoader(
    train_set,
    batch_size=args.batch_size // world,
    sampler=sampler,
    num_workers=-(-args.workers // world),
    pin_memory=use_cuda,
)

model = DistributedDataParallel(ResNet().to(device), device_ids=[local_rank] if use_cuda else None)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)

model.train()
sampler.set_epoch(0)
running, correct, seen = 0.0, 0, 0
for step, (images, targets) in enumerate(train_loader):
    images, targets = images.to(device, non_blocking=True), targets.to(device, non_blocking=True)
    outputs = model(images)
    loss = criterion(outputs, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    running += loss.item()
    correct += outputs.argmax(1).eq(targets).sum().item()
    seen += targets.size(0)
    if (step + 1) % 10 == 0:
        sums = torch.tensor([running / world, correct, seen], dtype=torch.float64, device=device)
        dist.reduce(sums, 0)
        if rank == 0:
            total, right, rows = sums.tolist()
            print(
                "step %d: loss %.4f, accuracy %.2f%%" % (step + 1, total / (step + 1), 100.0 * right / rows)
            )

if rank == 0:
    torch.save(model.module.state_dict(), "images.pth")
dist.destroy_process_group()
