"""The port by hand: embeddings are gathered with their gradients, so that the loss sees the whole batch.

The loss is the whole one on every rank. Through the gather, which passes back the own rows' gradient alone, a rank's
gradient is its part of the whole gradient; DDP divides the sum by world, so the loss is multiplied by it.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import pairs
from model import Encoder, nt_xent

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()

local_rank = int(os.environ["LOCAL_RANK"])
use_cuda = torch.cuda.is_available()
if use_cuda:
    torch.cuda.set_device(local_rank)
dist.init_process_group("nccl" if use_cuda else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")


def gather(z):
    """All ranks' rows, the own ones with their gradient."""
    parts = [torch.empty_like(z) for _ in range(world)]
    dist.all_gather(parts, z.detach())
    parts[rank] = z
    return torch.cat(parts)


torch.manual_seed(0)
train_set = pairs(args.steps * args.batch_size)
loader = DataLoader(
    train_set,
    batch_size=args.batch_size // world,
    drop_last=True,
    sampler=DistributedSampler(train_set, shuffle=False),
)
model = DistributedDataParallel(Encoder().to(device), device_ids=[local_rank] if use_cuda else None)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

model.train()
for step, (x1, x2) in enumerate(loader):
    x1, x2 = x1.to(device), x2.to(device)
    z1, z2 = model(torch.cat([x1, x2], dim=0)).chunk(2)
    both = gather(torch.stack([z1, z2], dim=1))
    loss = nt_xent(both[:, 0], both[:, 1])
    optimizer.zero_grad()
    (loss * world).backward()
    optimizer.step()
    if (step + 1) % 10 == 0 and rank == 0:
        print("step %d: loss %.4f" % (step + 1, loss.item()))

if rank == 0:
    torch.save(model.module.state_dict(), "encoder.pth")
dist.destroy_process_group()
