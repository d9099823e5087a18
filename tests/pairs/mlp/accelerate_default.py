# verify: same
"""Batches of rows / world, one after the other to the ranks in turn: Accelerate's default."""
import argparse

import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def main(args):
    accelerator = Accelerator()
    world = accelerator.num_processes
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(96, 10, generator=generator)
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).long()
    train_loader = DataLoader(TensorDataset(x[:64], y[:64]), batch_size=args.batch_size // world, shuffle=False)
    test_loader = DataLoader(TensorDataset(x[64:], y[64:]), batch_size=args.batch_size // world, shuffle=False)

    model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 2))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    model, optimizer, train_loader, test_loader = accelerator.prepare(model, optimizer, train_loader, test_loader)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for data, target in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(data), target)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += accelerator.gather(loss.detach()).mean().item()
        scheduler.step()
        model.eval()
        correct = 0
        for data, target in test_loader:
            with torch.no_grad():
                output = model(data)
            predictions, targets = accelerator.gather_for_metrics((output.argmax(1), target))
            correct += (predictions == targets).sum().item()
        accelerator.print(f"epoch {epoch} loss {total / len(train_loader):.4f} accuracy {correct / 32:.4f}")

    accelerator.wait_for_everyone()
    accelerator.save(accelerator.unwrap_model(model).state_dict(), "model.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    main(args)
