"""Train a small ResNet on CIFAR-shaped images with DataParallel."""

import argparse
import os

import torch
import torch.nn as nn
import torch.optim as optim

from data import test_set, train_set
from model import ResNet
from ddp_helpers import Rank0Loader, WholeBatchDDP, init_distributed, run_on_rank0, save_on_rank0

parser = argparse.ArgumentParser(description="CIFAR training")
parser.add_argument("--lr", default=0.1, type=float, help="learning rate")
parser.add_argument("--epochs", default=3, type=int)
parser.add_argument("--batch-size", default=32, type=int)
parser.add_argument("--workers", default=2, type=int)
parser.add_argument("--seed", default=0, type=int)
parser.add_argument("--out", default="checkpoint", help="folder for the best checkpoint")
parser.add_argument("--resume", action="store_true", help="start from the best checkpoint")
args = parser.parse_args()

init_distributed()

torch.manual_seed(args.seed)
device = "cuda" if torch.cuda.is_available() else "cpu"
best_acc = 0.0
start_epoch = 0

print("==> Preparing data..")
trainset = train_set()
trainloader = Rank0Loader(trainset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
testset = test_set()
testloader = Rank0Loader(testset, batch_size=50, shuffle=False, num_workers=args.workers)

print("==> Building model..")
net = ResNet(num_classes=trainset.classes)
net = net.to(device)
if device == "cuda":
    net = WholeBatchDDP(net)

checkpoint_path = os.path.join(args.out, "best.pth")
if args.resume:
    print("==> Resuming from checkpoint..")
    checkpoint = torch.load(checkpoint_path, map_location=device)
    net.load_state_dict(checkpoint["net"])
    best_acc = checkpoint["acc"]
    start_epoch = checkpoint["epoch"] + 1

criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)


def train(epoch):
    net.train()
    train_loss = 0.0
    correct = 0
    total = 0
    for inputs, targets in trainloader:
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()

        train_loss += loss.item()
        _, predicted = outputs.max(1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()
    print("Epoch %d: train loss %.3f | acc %.2f%% (%d/%d)" % (
        epoch, train_loss / len(trainloader), 100.0 * correct / total, correct, total))


def test(epoch):
    global best_acc
    net.eval()
    test_loss = 0.0
    correct = 0
    total = 0
    with torch.no_grad():
        for inputs, targets in testloader:
            inputs, targets = inputs.to(device), targets.to(device)
            outputs = net(inputs)
            loss = criterion(outputs, targets)

            test_loss += loss.item()
            _, predicted = outputs.max(1)
            total += targets.size(0)
            correct += predicted.eq(targets).sum().item()
    acc = 100.0 * correct / total
    print("Epoch %d: test loss %.3f | acc %.2f%% (%d/%d)" % (
        epoch, test_loss / len(testloader), acc, correct, total))

    # Keep the best
    if acc > best_acc:
        print("Saving..")
        state = {"net": net.state_dict(), "acc": acc, "epoch": epoch}
        if not os.path.isdir(args.out):
            run_on_rank0(os.makedirs, args.out)
        save_on_rank0(state, checkpoint_path)
        best_acc = acc


for epoch in range(start_epoch, args.epochs):
    train(epoch)
    test(epoch)
    scheduler.step()
print("Best accuracy: %.2f%%" % best_acc)
