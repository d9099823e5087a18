# corpus: idioms = permutes the batch on the spot (mixup/cutmix randperm); torch.rand* inside the train step; manual adjust_learning_rate; Variable(); correct/total counters
# corpus: worlds = 2 3 4
"""mixup in even epochs, cutmix in odd ones; the partner of a sample stands somewhere else in the batch."""
from __future__ import print_function

import argparse
import csv
import os

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.autograd import Variable
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description='PyTorch CIFAR10 Training')
parser.add_argument('--lr', default=0.1, type=float, help='learning rate')
parser.add_argument('--epoch', default=4, type=int)
parser.add_argument('--alpha', default=1., type=float)
parser.add_argument('--seed', default=20, type=int)
parser.add_argument('--decay', default=1e-4, type=float)
args = parser.parse_args()
use_cuda = torch.cuda.is_available()
best_acc = 0
if args.seed != 0:
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)

g = torch.Generator().manual_seed(0)
x = torch.randn(56, 3, 6, 6, generator=g)
y = (x.mean((1, 2, 3)) * 8).long().clamp(-2, 2) + 2
trainloader = DataLoader(TensorDataset(x[:42], y[:42]), batch_size=12, shuffle=True)
testloader = DataLoader(TensorDataset(x[42:], y[42:]), batch_size=8, shuffle=False)

net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5))
if not os.path.isdir('results'):
    os.mkdir('results')
logname = 'results/log_' + net.__class__.__name__ + '_' + str(args.seed) + '.csv'
if use_cuda:
    net.cuda()
    net = torch.nn.DataParallel(net)
    print(torch.cuda.device_count() > 0)
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=args.decay)


def mixup_data(x, y, alpha=1.0):
    lam = np.random.beta(alpha, alpha) if alpha > 0 else 1
    index = torch.randperm(x.size()[0]).cuda() if use_cuda else torch.randperm(x.size()[0])
    return lam * x + (1 - lam) * x[index, :], y, y[index], lam


def rand_bbox(size, lam):
    cut = np.sqrt(1. - lam)
    w, h = int(size[2] * cut), int(size[3] * cut)
    cx, cy = np.random.randint(size[2]), np.random.randint(size[3])
    return np.clip([cx - w // 2, cy - h // 2, cx + w // 2, cy + h // 2], 0, size[2])


def cutmix_data(x, y, beta):
    lam = np.random.beta(beta, beta)
    rand_index = torch.randperm(x.size()[0])
    if use_cuda:
        rand_index = rand_index.cuda()
    a, b, c, d = rand_bbox(x.size(), lam)
    x[:, :, a:c, b:d] = x[rand_index, :, a:c, b:d]
    lam = 1 - ((c - a) * (d - b) / (x.size()[-1] * x.size()[-2]))
    return x, y, y[rand_index], lam


def train(epoch):
    net.train()
    train_loss, correct, total = 0, 0, 0
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        if use_cuda:
            inputs, targets = inputs.cuda(), targets.cuda()
        mix = cutmix_data if epoch % 2 else mixup_data
        inputs, targets_a, targets_b, lam = mix(inputs, targets, args.alpha)
        inputs, targets_a, targets_b = map(Variable, (inputs, targets_a, targets_b))
        outputs = net(inputs)
        loss = lam * criterion(outputs, targets_a) + (1 - lam) * criterion(outputs, targets_b)
        train_loss += loss.item()
        _, predicted = torch.max(outputs.data, 1)
        total += targets.size(0)
        correct += (lam * predicted.eq(targets_a.data).cpu().sum().float()
                    + (1 - lam) * predicted.eq(targets_b.data).cpu().sum().float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(batch_idx, len(trainloader), 'Loss: %.4f | Acc: %.3f%% (%.3f/%d)' % (train_loss / (batch_idx + 1), 100. * correct / total, correct, total))
    return train_loss / (batch_idx + 1), 100. * correct / total


def test(epoch):
    global best_acc
    net.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for inputs, targets in testloader:
            outputs = net(inputs.cuda() if use_cuda else inputs)
            correct += outputs.argmax(1).cpu().eq(targets).sum().item()
            total += targets.size(0)
    acc = 100. * correct / total
    if acc > best_acc:
        torch.save({'net': net.state_dict(), 'acc': acc, 'epoch': epoch, 'rng_state': torch.get_rng_state()}, 'ckpt.t7' + str(args.seed))
        best_acc = acc
    return acc


with open(logname, 'w') as logfile:
    csv.writer(logfile, delimiter=',').writerow(['epoch', 'train loss', 'train acc', 'test acc'])
for epoch in range(args.epoch):
    for group in optimizer.param_groups:
        group['lr'] = args.lr / (1 + epoch)
    train_loss, train_acc = train(epoch)
    with open(logname, 'a') as logfile:
        csv.writer(logfile, delimiter=',').writerow([epoch, train_loss, float(train_acc), test(epoch)])
