"""Training on all GPUs with DataParallel: one process, which cuts each batch into a part for each GPU.

python train_dp.py
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler

from data import test_set, train_set
from model import ConvNet

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=32, help="rows of all GPUs together")
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
parser.add_argument("--resume", action="store_true", help="go on from the checkpoint, if there is one")


def main() -> None:
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    training = train_set()
    order = torch.Generator()
    train_loader = DataLoader(
        training,
        args.batch_size,
        sampler=RandomSampler(training, generator=order),
        num_workers=args.workers,
        drop_last=True,
    )
    test_loader = DataLoader(test_set(), args.batch_size, num_workers=args.workers)

    model = nn.DataParallel(ConvNet().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    first_epoch = 0
    if args.resume and args.checkpoint.exists():
        saved = torch.load(args.checkpoint, map_location=device)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first_epoch = saved["epoch"] + 1

    for epoch in range(first_epoch, args.epochs):
        order.manual_seed(args.seed + epoch)  # another order in each epoch, the same in a run that goes on
        loss = train(model, train_loader, optimizer, device)
        accuracy = evaluate(model, test_loader, device)
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.1%}")
        state = {"epoch": epoch, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, args.checkpoint)


def train(
    model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, device: torch.device
) -> float:
    """One epoch; returns the mean loss."""
    model.train()
    total, rows = 0.0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
        rows += len(labels)
    return total / rows


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    """The share of rows that are classified right."""
    model.eval()
    right, rows = 0, 0
    for images, labels in loader:
        right += (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
        rows += len(labels)
    return right / rows


if __name__ == "__main__":
    main()
