"""The same with Hugging Face Accelerate."""

import argparse

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.utils.data import DataLoader

from data import MadeUpImages
from model import make_net

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--net", default="small", choices=["small", "resnet50"])
parser.add_argument("--lr", type=float, default=0.02)
args = parser.parse_args()

accelerator = Accelerator(
    cpu=not torch.cuda.is_available(), dataloader_config=DataLoaderConfiguration(split_batches=True)
)
world = accelerator.num_processes

set_seed(0, device_specific=True)  # other crops on each rank
train_set = MadeUpImages(args.steps * args.batch_size, args.size)
train_loader = DataLoader(
    train_set,
    batch_size=args.batch_size,
    shuffle=True,
    num_workers=-(-args.workers // world),
    pin_memory=torch.cuda.is_available(),
)
model = make_net(args.net)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)
model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)

model.train()
running = 0.0
for step, (images, targets) in enumerate(train_loader):
    loss = criterion(model(images), targets)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()

    running += loss.item()
    if (step + 1) % 10 == 0:
        mean = torch.tensor(running / (step + 1), dtype=torch.float64, device=accelerator.device)
        accelerator.print("step %d: loss %.4f" % (step + 1, accelerator.reduce(mean, "mean").item()))
scheduler.step()

weights = accelerator.unwrap_model(model).state_dict()
accelerator.save({"model": weights, "optimizer": optimizer.state_dict()}, "images.pth")
accelerator.end_training()
