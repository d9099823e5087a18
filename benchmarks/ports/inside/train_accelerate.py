"""The same with Hugging Face Accelerate."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

from data import features
from model import Tagger

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--lr", type=float, default=0.001)
args = parser.parse_args()

accelerator = Accelerator(
    cpu=not torch.cuda.is_available(), dataloader_config=DataLoaderConfiguration(split_batches=True)
)
world = accelerator.num_processes

torch.manual_seed(0)
train_set = features(args.steps * args.batch_size)
loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
model = Tagger()
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

right = 0.0
for step, (x, y) in enumerate(loader):
    loss, correct = model(x, y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    right += correct.item()
    if (step + 1) % 10 == 0:
        sums = accelerator.reduce(torch.tensor([loss.item() / world, right], device=accelerator.device))
        accelerator.print(f"step {step + 1}: loss {sums[0].item():.4f}, right {sums[1].item():.0f}")

accelerator.save(accelerator.unwrap_model(model).state_dict(), "tagger.pth")
accelerator.end_training()
