"""The same with Hugging Face Accelerate."""

import argparse
import math

import torch
import torch.nn as nn
from accelerate import Accelerator

from data import batchify
from model import WORDS, LanguageModel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--length", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.002)
args = parser.parse_args()

accelerator = Accelerator(cpu=not torch.cuda.is_available())
device = accelerator.device

torch.manual_seed(0)
text = batchify(args.steps, args.batch_size, args.length, WORDS)
text = text.chunk(accelerator.num_processes, 1)[accelerator.process_index]
model = LanguageModel()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
model, optimizer = accelerator.prepare(model, optimizer)


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
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()

    total_loss += loss.item()
    if (i + 1) % 10 == 0:
        mean = accelerator.reduce(torch.tensor(total_loss / 10, device=device), "mean").item()
        accelerator.print("step {:3d} | loss {:5.2f} | ppl {:8.2f}".format(i + 1, mean, math.exp(mean)))
        total_loss = 0.0

accelerator.save(accelerator.unwrap_model(model).state_dict(), "lm.pth")
accelerator.end_training()
