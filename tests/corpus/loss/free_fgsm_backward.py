# corpus: idioms = attack loop calls loss.backward() through the wrapped training model; two or more backward() before one step, or forward twice before backward; lr_scheduler; grads or params edited between backward and step (rescale, binarise, AWP, ortho, accumulate EMA)
# corpus: worlds = 2 3 4
"""Fast adversarial training: the perturbation is kept from batch to batch ("free"), and the attack is loss.backward() itself."""
import argparse
import logging
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

logger = logging.getLogger(__name__)
logging.basicConfig(format='%(message)s', level=logging.DEBUG, filename='output.log')


def clamp(X, lower_limit, upper_limit):
    return torch.max(torch.min(X, upper_limit), lower_limit)


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--batch-size', default=10, type=int)
    parser.add_argument('--epochs', default=3, type=int)
    parser.add_argument('--lr-max', default=0.1, type=float)
    parser.add_argument('--epsilon', default=8, type=int)
    parser.add_argument('--alpha', default=10, type=float)
    parser.add_argument('--minibatch-replays', default=2, type=int)
    parser.add_argument('--delta-init', default='random', choices=['zero', 'random', 'previous'])
    parser.add_argument('--seed', default=0, type=int)
    return parser.parse_args()


def main():
    args = get_args()
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.cuda.manual_seed(args.seed)
    mu, std = torch.tensor([0.5]).cuda(), torch.tensor([0.25]).cuda()
    upper, lower = ((1 - mu) / std), ((0 - mu) / std)
    g = torch.Generator().manual_seed(2)
    x = (torch.rand(36, 1, 6, 6, generator=g) - 0.5) / 0.25
    y = (x[:, 0, 0, 0] > 0).long() + (x[:, 0, 1, 1] > 0).long()
    train_loader = DataLoader(TensorDataset(x, y), batch_size=args.batch_size, shuffle=True, drop_last=False)
    epsilon = torch.tensor(args.epsilon / 255.).cuda() / std
    alpha = torch.tensor(args.alpha / 255.).cuda() / std

    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(96, 3)).cuda()
    model = torch.nn.DataParallel(model)
    model.train()
    opt = torch.optim.SGD(model.parameters(), lr=args.lr_max, momentum=0.9, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss()
    lr_steps = args.epochs * len(train_loader) * args.minibatch_replays
    scheduler = torch.optim.lr_scheduler.CyclicLR(opt, base_lr=0.001, max_lr=args.lr_max, step_size_up=lr_steps / 2, step_size_down=lr_steps / 2)
    delta = torch.zeros(args.batch_size, 1, 6, 6).cuda()
    delta.requires_grad = True
    start = time.time()
    for epoch in range(args.epochs):
        train_loss, train_acc, train_n = 0, 0, 0
        for i, (X, y) in enumerate(train_loader):
            X, y = X.cuda(), y.cuda()
            for _ in range(args.minibatch_replays):            # "free": attack and training share one backward
                output = model(X + delta[:X.size(0)])
                loss = criterion(output, y)
                opt.zero_grad()
                loss.backward()
                grad = delta.grad.detach()
                delta.data = clamp(delta + alpha * torch.sign(grad), -epsilon, epsilon)
                delta.data[:X.size(0)] = clamp(delta[:X.size(0)], lower - X, upper - X)
                opt.step()
                delta.grad.zero_()
                scheduler.step()
            # one FGSM step of its own; its gradients of the weights are thrown away by zero_grad
            d = torch.zeros_like(X).uniform_(-1, 1) * epsilon
            d.requires_grad = True
            F.cross_entropy(model(X + d), y).backward()
            d.data = clamp(d + alpha * d.grad.sign(), -epsilon, epsilon)
            d = d.detach()
            output = model(X + d)
            loss = criterion(output, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            train_loss += loss.item() * y.size(0)
            train_acc += (output.max(1)[1] == y).sum().item()
            train_n += y.size(0)
        logger.info('%d \t %.6f \t %.4f \t %.4f', epoch, scheduler.get_last_lr()[0], train_loss / train_n, train_acc / train_n)
        print(epoch, train_loss / train_n, train_acc / train_n, 'delta', delta.abs().mean().item())
    assert time.time() >= start


if __name__ == "__main__":
    main()
