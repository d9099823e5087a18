"""The port by hand: the mean of the replicas' losses is the mean over ranks, which DDP takes of the gradients."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import features
from model import Tagger

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--lr", type=float, default=0.001)
args = parser.parse_args()

local_rank = int(os.environ["LOCAL_RANK"])
use_cuda = torch.cuda.is_available()
if use_cuda:
    torch.cuda.set_device(local_rank)
dist.init_process_group("nccl" if use_cuda else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")

torch.manual_seed(0)
train_set = features(args.steps * args.batch_size)
loader = DataLoader(train_set, batch_size=args.batch_size // world, sampler=DistributedSampler(train_set))
model = DistributedDataParallel(Tagger().to(device), device_ids=[local_rank] if use_cuda else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

right = 0.0
for step, (x, y) in enumerate(loader):
    x, y = x.to(device), y.to(device)
    loss, correct = model(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    right += correct.item()
    if (step + 1) % 10 == 0:
        sums = torch.tensor([loss.item() / world, right], device=device)
        dist.reduce(sums, 0)
        if rank == 0:
            print(f"step {step + 1}: loss {sums[0].item():.4f}, right {sums[1].item():.0f}")

if rank == 0:
    torch.save(model.module.state_dict(), "tagger.pth")
dist.destroy_process_group()
