"""The same with Hugging Face Accelerate, whose gather has no gradients: the own rows are put in their place."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

from data import pairs
from model import Encoder, nt_xent

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()

accelerator = Accelerator(
    cpu=not torch.cuda.is_available(), dataloader_config=DataLoaderConfiguration(split_batches=True)
)
rank, world = accelerator.process_index, accelerator.num_processes


def gather(z):
    parts = list(accelerator.gather(z.detach()).chunk(world))
    parts[rank] = z
    return torch.cat(parts)


torch.manual_seed(0)
loader = DataLoader(
    pairs(args.steps * args.batch_size), batch_size=args.batch_size, shuffle=False, drop_last=True
)
model = Encoder()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

model.train()
for step, (x1, x2) in enumerate(loader):
    z1, z2 = model(torch.cat([x1, x2], dim=0)).chunk(2)
    both = gather(torch.stack([z1, z2], dim=1))
    loss = nt_xent(both[:, 0], both[:, 1])
    optimizer.zero_grad()
    accelerator.backward(loss * world)
    optimizer.step()
    if (step + 1) % 10 == 0 and rank == 0:
        print("step %d: loss %.4f" % (step + 1, loss.item()))

accelerator.save(accelerator.unwrap_model(model).state_dict(), "encoder.pth")
accelerator.end_training()
