# verify: same
import argparse

import torch
import torch.nn as nn
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()

fabric = Fabric(accelerator="cuda", devices=torch.cuda.device_count(), strategy="ddp")
fabric.launch()
fabric.seed_everything(0, verbose=False)

generator = torch.Generator().manual_seed(1)
x = torch.randn(96, 10, generator=generator)
y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).long()
rows = args.batch_size // fabric.world_size
train_loader = DataLoader(TensorDataset(x[:64], y[:64]), batch_size=rows, shuffle=False)
test_loader = DataLoader(TensorDataset(x[64:], y[64:]), batch_size=rows, shuffle=False)

model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
model, optimizer = fabric.setup(model, optimizer)
train_loader, test_loader = fabric.setup_dataloaders(train_loader, test_loader)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

for epoch in range(args.epochs):
    model.train()
    total = 0.0
    for data, target in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(data), target)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        total += fabric.all_reduce(loss.detach(), reduce_op="mean").item()
    scheduler.step()
    model.eval()
    correct = torch.zeros(1, device=fabric.device)
    with torch.no_grad():
        for data, target in test_loader:
            correct += (model(data).argmax(1) == target).sum()
    correct = fabric.all_reduce(correct, reduce_op="sum")
    fabric.print(f"epoch {epoch} loss {total / len(train_loader):.4f} accuracy {correct.item() / 32:.4f}")

if fabric.is_global_zero:
    torch.save(model.module.state_dict(), "model.pt")
