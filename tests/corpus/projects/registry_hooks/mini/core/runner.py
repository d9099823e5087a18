import os

import torch

from ..registry import HOOKS


def parse_losses(losses):
    log = {name: value.mean() for name, value in losses.items()}
    loss = sum(value for name, value in log.items() if 'loss' in name)
    return loss, {'loss': loss.item(), **{name: value.item() for name, value in log.items()}}


class Runner:
    def __init__(self, model, optimizer, work_dir, hooks):
        self.model = model
        kind = optimizer.pop('type')
        self.optimizer = getattr(torch.optim, kind)(model.parameters(), **optimizer)
        self.work_dir = work_dir
        os.makedirs(work_dir, exist_ok=True)
        self.hooks = [HOOKS.build(hook) for hook in hooks]
        self.epoch = self.iter = 0

    def call_hook(self, name):
        for hook in self.hooks:
            getattr(hook, name)(self)

    def run(self, loader, epochs):
        self.call_hook('before_run')
        while self.epoch < epochs:
            self.train(loader)
            self.epoch += 1
            self.call_hook('after_epoch')

    def train(self, loader):
        self.model.train()
        for img, data in loader:
            losses = self.model(img, data)
            loss, self.outputs = parse_losses(losses)
            self.optimizer.zero_grad()
            loss.backward()
            self.call_hook('after_backward')
            self.optimizer.step()
            self.iter += 1
            self.call_hook('after_iter')
            print('Epoch [%d] iter %d' % (self.epoch + 1, self.iter), {k: round(v, 4) for k, v in self.outputs.items()})
