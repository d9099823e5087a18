"""The same with Hugging Face Accelerate."""

import argparse

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

from data import images
from model import net

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.01)
args = parser.parse_args()

accelerator = Accelerator(
    cpu=not torch.cuda.is_available(), dataloader_config=DataLoaderConfiguration(split_batches=True)
)

torch.manual_seed(0)
loader = DataLoader(images(args.steps * args.batch_size), batch_size=args.batch_size)
model = net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

for step, (x, y) in enumerate(loader):
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    if (step + 1) % 10 == 0:
        mean = accelerator.reduce(loss.detach(), "mean").item()
        accelerator.print("step %d: loss %.4f" % (step + 1, mean))
accelerator.end_training()
