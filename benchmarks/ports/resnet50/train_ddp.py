"""ResNet-50 on made-up images: the port by hand."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import made_up_images
from model import ResNet50

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--width", type=int, default=64)
args = parser.parse_args()

local_rank = int(os.environ["LOCAL_RANK"])
use_cuda = torch.cuda.is_available()
if use_cuda:
    torch.cuda.set_device(local_rank)
dist.init_process_group("nccl" if use_cuda else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")

torch.manual_seed(0)
train_set = made_up_images(4 * args.batch_size, args.size)
sampler = DistributedSampler(train_set, shuffle=False)
train_loader = DataLoader(train_set, batch_size=args.batch_size // world, sampler=sampler)
model = DistributedDataParallel(
    ResNet50(args.width).to(device), device_ids=[local_rank] if use_cuda else None
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

step = 0
while step < args.steps:
    for images, targets in train_loader:
        loss = criterion(model(images.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step == args.steps:
            break
if rank == 0:
    print("loss %.4f" % loss.item())
dist.destroy_process_group()
