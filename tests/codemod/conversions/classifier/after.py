"""Train CIFAR10 with PyTorch."""
import os
import argparse

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import TensorDataset
from dp2ddp.helpers import Rank0Loader, WholeBatchDDP, count_ranks, init_distributed, run_on_rank0, save_on_rank0

parser = argparse.ArgumentParser(description='PyTorch CIFAR10 Training')
parser.add_argument('--lr', default=0.1, type=float, help='learning rate')
parser.add_argument('--resume', '-r', action='store_true')
args = parser.parse_args()

device = 'cuda' if torch.cuda.is_available() else 'cpu'
best_acc = 0  # best test accuracy

init_distributed()

# Data
trainset = TensorDataset(torch.randn(100, 3, 8, 8), torch.randint(0, 10, (100,)))
trainloader = Rank0Loader(trainset, batch_size=32, shuffle=True, num_workers=2)

# Model
net = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
net = net.to(device)
if count_ranks() > 1:
    print("Let's use", count_ranks(), "GPUs!")
    net = WholeBatchDDP(net, device_ids=[0, 1])

if args.resume:
    checkpoint = torch.load('./checkpoint/ckpt.pth')
    net.load_state_dict(checkpoint['net'])

criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)


def train(epoch):
    net.train()
    train_loss = 0
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        inputs, targets = inputs.to(device), targets.cuda()
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        train_loss += loss.item()
    print('loss', train_loss)
    # Save checkpoint.
    if not os.path.isdir('checkpoint'):
        run_on_rank0(os.mkdir, 'checkpoint')
    save_on_rank0({'net': net.state_dict()}, './checkpoint/ckpt.pth')


for epoch in range(2):
    train(epoch)
