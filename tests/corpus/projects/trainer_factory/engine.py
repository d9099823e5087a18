import os

import torch
import torch.nn as nn


class Trainer:
    def __init__(self, net, loaders, args):
        self.net = net
        self.loaders = loaders
        self.args = args
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=args.lr, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)
        self.best = 0.0

    def fit(self, epochs):
        for epoch in range(epochs):
            loss = self.train_epoch()
            acc = self.evaluate()
            self.scheduler.step()
            print('epoch %d: loss %.4f, acc %.3f' % (epoch, loss, acc))
            if acc > self.best:
                self.best = acc
                self.save('best.pth', epoch)

    def train_epoch(self):
        self.net.train()
        total = 0.0
        for images, targets in self.loaders['train']:
            images, targets = images.cuda(), targets.cuda()
            loss = self.criterion(self.net(images), targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item() * targets.size(0)
        return total / len(self.loaders['train'].dataset)

    @torch.no_grad()
    def evaluate(self):
        self.net.eval()
        correct = 0
        for images, targets in self.loaders['val']:
            scores = self.net(images.cuda())
            correct += (scores.argmax(1).cpu() == targets).sum().item()
        return correct / len(self.loaders['val'].dataset)

    def save(self, name, epoch):
        os.makedirs(self.args.out, exist_ok=True)
        net = self.net.module if hasattr(self.net, 'module') else self.net
        torch.save({'net': net.state_dict(), 'epoch': epoch}, os.path.join(self.args.out, name))
