"""Progress bars that have a name, over training and evaluation."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=8)
args = parser.parse_args()

torch.manual_seed(0)
inputs, targets = torch.randn(96, 12), torch.randint(0, 3, (96,))
train_set, val_set = TensorDataset(inputs[:64], targets[:64]), TensorDataset(inputs[64:], targets[64:])
train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
val_loader = DataLoader(val_set, batch_size=args.batch_size)


def train(epoch, model, optimizer):
    model.train()
    pbar = tqdm(enumerate(train_loader), total=len(train_loader), desc="Epoch %d" % epoch)
    for i, (x, y) in pbar:
        x, y = x.cuda(), y.cuda()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if i % 2 == 0:
            pbar.set_postfix(loss=f"{loss.item():.4f}")
    pbar.close()


def evaluate(model):
    model.eval()
    correct = 0
    with torch.no_grad(), tqdm(val_loader) as bar:
        for x, y in bar:
            bar.set_description("testing")
            correct += (model(x.cuda()).argmax(1) == y.cuda()).sum().item()
        bar.write(f"{correct} right")
    return correct / len(val_set)


def main():
    model = nn.DataParallel(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        train(epoch, model, optimizer)
        accuracy = evaluate(model)
        print("epoch", epoch, "accuracy", accuracy)
    torch.save(model.module.state_dict(), "model.pth")


if __name__ == "__main__":
    main()
