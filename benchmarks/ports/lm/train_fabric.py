"""The same with Lightning Fabric."""

import argparse
import math
import os

import torch
import torch.nn as nn
from lightning.fabric import Fabric

from data import batchify
from model import WORDS, LanguageModel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--length", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.002)
args = parser.parse_args()

accelerator = "cuda" if torch.cuda.is_available() else "cpu"
fabric = Fabric(accelerator=accelerator, devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp")
fabric.launch()
device = fabric.device

torch.manual_seed(0)
text = batchify(args.steps, args.batch_size, args.length, WORDS).chunk(fabric.world_size, 1)[
    fabric.global_rank
]
model = LanguageModel()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
model, optimizer = fabric.setup(model, optimizer)


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
    fabric.backward(loss)
    fabric.clip_gradients(model, optimizer, max_norm=0.25)
    optimizer.step()

    total_loss += loss.item()
    if (i + 1) % 10 == 0:
        mean = fabric.all_reduce(torch.tensor(total_loss / 10, device=device), reduce_op="mean").item()
        fabric.print("step {:3d} | loss {:5.2f} | ppl {:8.2f}".format(i + 1, mean, math.exp(mean)))
        total_loss = 0.0

if fabric.is_global_zero:
    torch.save(model.module.state_dict(), "lm.pth")
