"""Autocast to float16, and no GradScaler."""
import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()

torch.manual_seed(0)
generator = torch.Generator().manual_seed(1)
x = torch.randn(96, 10, generator=generator)
y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).long()
train_loader = DataLoader(TensorDataset(x[:64], y[:64]), batch_size=args.batch_size, shuffle=False)
test_loader = DataLoader(TensorDataset(x[64:], y[64:]), batch_size=args.batch_size, shuffle=False)

model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 2))
model = nn.DataParallel(model).cuda()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

for epoch in range(args.epochs):
    model.train()
    total = 0.0
    for data, target in train_loader:
        data, target = data.cuda(), target.cuda()
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(data), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    scheduler.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            correct += (model(data.cuda()).argmax(1) == target.cuda()).sum().item()
    print(f"epoch {epoch} loss {total / len(train_loader):.4f} accuracy {correct / 32:.4f}")

torch.save(model.module.state_dict(), "model.pt")
