"""A language model with large logits: DataParallel."""

import argparse
import math

import torch
import torch.nn as nn

from data import batchify
from model import WORDS, LanguageModel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--length", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.002)
args = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
text = batchify(args.steps, args.batch_size, args.length, WORDS)
model = nn.DataParallel(LanguageModel().to(device))
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
        print(
            "step {:3d} | loss {:5.2f} | ppl {:8.2f}".format(
                i + 1, total_loss / 10, math.exp(total_loss / 10)
            )
        )
        total_loss = 0.0

torch.save(model.module.state_dict(), "lm.pth")
