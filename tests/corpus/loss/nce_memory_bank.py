# corpus: idioms = couples samples of the batch (contrastive/triplet/relational/NCE/topk/episode); batch statistics in forward other than BN (minibatch stddev, global memory bank); permutes the batch on the spot (mixup/cutmix randperm); manual adjust_learning_rate
# corpus: worlds = 2 3 4
"""Instance discrimination: a memory bank of all features, noise contrastive estimation, momentum update of the bank."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description='NCE')
parser.add_argument('--lr', '--learning-rate', default=0.1, type=float)
parser.add_argument('--nce-k', default=6, type=int)
parser.add_argument('--nce-t', default=0.2, type=float)
parser.add_argument('--nce-m', default=0.5, type=float)
parser.add_argument('--epochs', default=3, type=int)
best_prec1 = 0


class Instances(Dataset):
    def __init__(self, n):
        self.x = torch.randn(n, 3, 4, 4, generator=torch.Generator().manual_seed(n))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], int(self.x[index].mean() > 0), index


class NCEAverage(nn.Module):
    def __init__(self, inputSize, outputSize, K, T=0.07, momentum=0.5):
        super(NCEAverage, self).__init__()
        self.nLem = outputSize
        self.K = K
        self.register_buffer('params', torch.tensor([K, T, -1, momentum]))
        stdv = 1. / math.sqrt(inputSize / 3)
        self.register_buffer('memory', torch.rand(outputSize, inputSize).mul_(2 * stdv).add_(-stdv))

    def forward(self, x, y):
        K, T, Z, momentum = int(self.params[0].item()), self.params[1].item(), self.params[2].item(), self.params[3].item()
        batchSize = x.size(0)
        idx = torch.randint(0, self.nLem, (batchSize, K + 1), device=x.device)
        idx.select(1, 0).copy_(y.data)
        weight = torch.index_select(self.memory, 0, idx.view(-1)).view(batchSize, K + 1, -1)
        out = torch.bmm(weight, x.unsqueeze(2)).div(T).exp()
        if Z < 0:
            self.params[2] = out.mean().item() * self.nLem
            Z = self.params[2].item()
            print("normalization constant Z is set to {:.1f}".format(Z))
        out = out.div(Z).squeeze(2)
        with torch.no_grad():
            pos = self.memory.index_select(0, y).mul(momentum).add(x.detach() * (1 - momentum))
            self.memory.index_copy_(0, y, F.normalize(pos))
        return out


class NCECriterion(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, x):
        m = x.size(1) - 1
        Pnt = 1. / self.n
        lnPmt = torch.log(x[:, 0] / (x[:, 0] + m * Pnt + 1e-7))
        lnPon = torch.log(m * Pnt / (x[:, 1:] + m * Pnt + 1e-7))
        return -(lnPmt.sum() + lnPon.sum()) / x.size(0)


def adjust_learning_rate(optimizer, epoch, args):
    lr = args.lr * (0.1 ** (epoch // 2))
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr


def main():
    global args, best_prec1
    args = parser.parse_args()
    torch.manual_seed(1)
    encoder = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(True), nn.Flatten(), nn.Linear(24, 8))
    model = torch.nn.DataParallel(encoder).cuda()
    train_dataset = Instances(34)
    train_loader = DataLoader(train_dataset, batch_size=10, shuffle=True)
    lemniscate = NCEAverage(8, len(train_dataset), args.nce_k, args.nce_t, args.nce_m).cuda()
    criterion = NCECriterion(len(train_dataset)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)

    for epoch in range(args.epochs):
        adjust_learning_rate(optimizer, epoch, args)
        model.train()
        optimizer.zero_grad()
        for i, (input, target, index) in enumerate(train_loader):
            index = index.cuda()
            shuffled = torch.randperm(input.size(0))          # against cheating by BN
            unshuffle = torch.argsort(shuffled)
            feature = F.normalize(model(input[shuffled]))[unshuffle.cuda()]
            output = lemniscate(feature, index)
            loss = criterion(output)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print('Epoch: [{0}][{1}/{2}]\tLoss {3:.4f}'.format(epoch, i, len(train_loader), loss.item()))
        prec1 = kNN(model, lemniscate, train_loader)
        is_best = prec1 > best_prec1
        best_prec1 = max(prec1, best_prec1)
        torch.save({'state_dict': model.state_dict(), 'lemniscate': lemniscate, 'best': is_best}, 'ckpt.t7')
    print('best', best_prec1)


def kNN(net, lemniscate, loader):
    net.eval()
    correct, total = 0., 0
    labels = torch.tensor([loader.dataset[i][1] for i in range(len(loader.dataset))]).cuda()
    with torch.no_grad():
        for inputs, targets, indexes in loader:
            features = F.normalize(net(inputs.cuda()))
            dist = torch.mm(features, lemniscate.memory.t())
            dist.scatter_(1, indexes.cuda().view(-1, 1), -2)
            yd, yi = dist.topk(3, dim=1)
            vote = labels[yi].float().mean(1).round().long()
            correct += vote.eq(targets.cuda()).sum().item()
            total += targets.size(0)
    print('kNN acc {:.2f}'.format(correct / total))
    return correct / total


if __name__ == '__main__':
    main()
