"""The port by hand: each rank reads its columns of the text."""

import argparse
import math
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

from data import batchify
from model import WORDS, LanguageModel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--length", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.002)
args = parser.parse_args()

local_rank = int(os.environ["LOCAL_RANK"])
use_cuda = torch.cuda.is_available()
if use_cuda:
    torch.cuda.set_device(local_rank)
dist.init_process_group("nccl" if use_cuda else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")

torch.manual_seed(0)
text = batchify(args.steps, args.batch_size, args.length, WORDS).chunk(world, 1)[rank]
model = DistributedDataParallel(LanguageModel().to(device), device_ids=[local_rank] if use_cuda else None)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)


def get_batch(i):
    piece = text[i * args.length : (i + 1) * args.length + 1].t()
    return piece[:, :-1].contiguous().to(device), piece[:, 1:].contiguous().to(device)


model.train()
total_loss = 0.0
for i in range(args.steps):
    tokens, targets = get_batch(i)
    optimizer.zero_grad()
    logits = model(tokens)
    loss = criterion(logits.view(-1, WORDS), targets.view(-1))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()

    total_loss += loss.item()
    if (i + 1) % 10 == 0:
        mean = torch.tensor(total_loss / 10 / world, device=device)
        dist.reduce(mean, 0)
        if rank == 0:
            print("step {:3d} | loss {:5.2f} | ppl {:8.2f}".format(i + 1, mean.item(), math.exp(mean.item())))
        total_loss = 0.0

if rank == 0:
    torch.save(model.module.state_dict(), "lm.pth")
dist.destroy_process_group()
