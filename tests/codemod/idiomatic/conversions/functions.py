"""A trainer with a main(): options, a split, tensorboard, a plateau, early stopping, a checkpoint that is read back."""

import argparse
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, random_split
from torch.utils.tensorboard import SummaryWriter
from torchvision import datasets, models, transforms
from tqdm import tqdm

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--epochs", type=int, default=90)
parser.add_argument("--out", default="runs")


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / self.count


def train(loader, model, criterion, optimizer, epoch, writer):
    losses = AverageMeter()
    model.train()
    for i, (images, target) in enumerate(tqdm(loader, desc=f"epoch {epoch}")):
        images, target = images.cuda(non_blocking=True), target.cuda(non_blocking=True)
        output = model(images)
        loss = criterion(output, target)
        losses.update(loss.item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if i % 10 == 0:
            print(f"{epoch} {i} loss {losses.avg:.4f}")
    writer.add_scalar("train/loss", losses.avg, epoch)


def validate(loader, model, criterion):
    losses = AverageMeter()
    model.eval()
    with torch.no_grad():
        for images, target in loader:
            output = model(images.cuda())
            losses.update(criterion(output, target.cuda()).item(), images.size(0))
    return losses.avg


def main():
    args = parser.parse_args()
    torch.manual_seed(1)
    os.makedirs(args.out, exist_ok=True)
    data = datasets.CIFAR10("data", transform=transforms.ToTensor(), download=True)
    train_data, val_data = random_split(data, [45000, 5000])
    train_loader = DataLoader(train_data, args.batch_size, shuffle=True, num_workers=8, drop_last=True)
    val_loader = DataLoader(val_data, args.batch_size, num_workers=8)
    model = models.resnet18(num_classes=10)
    model = nn.DataParallel(model, device_ids=[0, 1, 2, 3]).cuda()
    criterion = nn.CrossEntropyLoss().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    writer = SummaryWriter(args.out)
    best, wait = np.inf, 0
    for epoch in range(args.epochs):
        train(train_loader, model, criterion, optimizer, epoch, writer)
        loss = validate(val_loader, model, criterion)
        scheduler.step(loss)
        writer.add_scalar("val/loss", loss, epoch)
        is_best = loss < best
        if is_best:
            torch.save(model.state_dict(), "best.pt")
        best, wait = (loss, 0) if is_best else (best, wait + 1)
        if wait > 5:
            print("no progress any more")
            break
    model.load_state_dict(torch.load("best.pt"))
    final = validate(val_loader, model, criterion)
    print("best", final)
    writer.close()


if __name__ == "__main__":
    main()
