"""The same with Hugging Face Accelerate."""

import argparse

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.utils.data import DataLoader

from data import SyntheticImages
from model import ResNet

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()

accelerator = Accelerator(
    cpu=not torch.cuda.is_available(), dataloader_config=DataLoaderConfiguration(split_batches=True)
)
world = accelerator.num_processes

set_seed(0, device_specific=True)  # other crops on each rank
train_set = SyntheticImages(args.steps * args.batch_size)
train_loader = DataLoader(
    train_set,
    batch_size=args.batch_size,
    shuffle=True,
    num_workers=-(-args.workers // world),
    pin_memory=torch.cuda.is_available(),
)
model = ResNet()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)

model.train()
running, correct, seen = 0.0, 0, 0
for step, (images, targets) in enumerate(train_loader):
    outputs = model(images)
    loss = criterion(outputs, targets)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()

    running += loss.item()
    correct += outputs.argmax(1).eq(targets).sum().item()
    seen += targets.size(0)
    if (step + 1) % 10 == 0:
        sums = torch.tensor([running / world, correct, seen], dtype=torch.float64, device=accelerator.device)
        total, right, rows = accelerator.reduce(sums).tolist()
        accelerator.print(
            "step %d: loss %.4f, accuracy %.2f%%" % (step + 1, total / (step + 1), 100.0 * right / rows)
        )

accelerator.save(accelerator.unwrap_model(model).state_dict(), "images.pth")
accelerator.end_training()
