# corpus: idioms = autograd.grad / create_graph through the wrapped model (attack, penalty); sum / none reduction normalised by hand; Variable(); manual adjust_learning_rate; volatile=; len(loader.dataset)
# corpus: worlds = 2 3 4
"""Adversarial training (TRADES): the inner maximisation differentiates through the wrapped model; PGD-20 for the test."""
from __future__ import print_function

import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.autograd import Variable
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description='PyTorch CIFAR TRADES Adversarial Training')
parser.add_argument('--batch-size', type=int, default=10)
parser.add_argument('--epochs', type=int, default=3)
parser.add_argument('--weight-decay', '--wd', default=2e-4, type=float)
parser.add_argument('--lr', type=float, default=0.1)
parser.add_argument('--epsilon', default=0.1)
parser.add_argument('--num-steps', default=3)
parser.add_argument('--step-size', default=0.05)
parser.add_argument('--beta', default=6.0)
parser.add_argument('--model-dir', default='./model-cifar')
args = parser.parse_args()
if not os.path.exists(args.model_dir):
    os.makedirs(args.model_dir)
torch.manual_seed(1)
device = torch.device("cuda")


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.bn = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(6 * 9, 4)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x)))
        x = F.max_pool2d(x, 2)
        return self.fc(self.drop(x.view(x.size(0), -1)))


def trades_loss(model, x_natural, y, optimizer, step_size=0.003, epsilon=0.031, perturb_steps=10, beta=1.0):
    criterion_kl = nn.KLDivLoss(reduction='sum')
    model.eval()
    batch_size = len(x_natural)
    x_adv = x_natural.detach() + 0.001 * torch.randn(x_natural.shape).cuda().detach()
    for _ in range(perturb_steps):
        x_adv.requires_grad_()
        with torch.enable_grad():
            loss_kl = criterion_kl(F.log_softmax(model(x_adv), dim=1), F.softmax(model(x_natural), dim=1))
        grad = torch.autograd.grad(loss_kl, [x_adv])[0]
        x_adv = x_adv.detach() + step_size * torch.sign(grad.detach())
        x_adv = torch.min(torch.max(x_adv, x_natural - epsilon), x_natural + epsilon)
        x_adv = torch.clamp(x_adv, 0.0, 1.0)
    model.train()
    x_adv = Variable(torch.clamp(x_adv, 0.0, 1.0), requires_grad=False)
    optimizer.zero_grad()
    logits = model(x_natural)
    loss_natural = F.cross_entropy(logits, y)
    loss_robust = (1.0 / batch_size) * criterion_kl(F.log_softmax(model(x_adv), dim=1), F.softmax(model(x_natural), dim=1))
    return loss_natural + beta * loss_robust


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = trades_loss(model=model, x_natural=data, y=target, optimizer=optimizer, step_size=args.step_size,
                           epsilon=args.epsilon, perturb_steps=args.num_steps, beta=args.beta)
        loss.backward()
        optimizer.step()
        print('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}'.format(
            epoch, batch_idx * len(data), len(train_loader.dataset), 100. * batch_idx / len(train_loader), loss.item()))


def eval_adv(model, test_loader):
    model.eval()
    natural_err_total, robust_err_total = 0, 0
    for data, target in test_loader:
        data, target = data.to(device), target.to(device)
        X, y = Variable(data, requires_grad=True), Variable(target, volatile=True)
        natural_err_total += (model(X).data.max(1)[1] != y.data).float().sum()
        X_pgd = Variable(X.data, requires_grad=True)
        for _ in range(2):
            opt = optim.SGD([X_pgd], lr=1e-3)
            opt.zero_grad()
            with torch.enable_grad():
                loss = nn.CrossEntropyLoss()(model(X_pgd), y)
            loss.backward()
            eta = args.step_size * X_pgd.grad.data.sign()
            X_pgd = Variable(X_pgd.data + eta, requires_grad=True)
            X_pgd = Variable(torch.clamp(torch.clamp(X_pgd.data - X.data, -args.epsilon, args.epsilon) + X.data, 0, 1.0), requires_grad=True)
        robust_err_total += (model(X_pgd).data.max(1)[1] != y.data).float().sum()
    print('natural_err_total: ', natural_err_total.item(), 'robust_err_total: ', robust_err_total.item())


def adjust_learning_rate(optimizer, epoch):
    lr = args.lr * (0.1 if epoch >= 2 else 1)
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr


def main():
    x = torch.rand(44, 1, 8, 8)
    y = (x.mean((1, 2, 3)) * 100).long() % 4
    train_loader = DataLoader(TensorDataset(x[:28], y[:28]), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(TensorDataset(x[28:], y[28:]), batch_size=9, shuffle=False)
    model = nn.DataParallel(SmallCNN()).to(device)
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=args.weight_decay)
    for epoch in range(1, args.epochs + 1):
        adjust_learning_rate(optimizer, epoch)
        train(args, model, device, train_loader, optimizer, epoch)
        eval_adv(model, test_loader)
        torch.save(model.state_dict(), os.path.join(args.model_dir, 'model-epoch{}.pt'.format(epoch)))


if __name__ == '__main__':
    main()
