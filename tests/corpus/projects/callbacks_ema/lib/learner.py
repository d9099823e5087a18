import torch
import torch.nn as nn
from tqdm import tqdm

from .loaders import make_loaders


class Learner:
    def __init__(self, settings):
        torch.manual_seed(settings.SEED)
        self.settings = settings
        self.loaders = make_loaders(settings.BATCH)
        self.net = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 1)).cuda()
        options = dict(settings.OPTIMIZER)
        self.optimizer = getattr(torch.optim, options.pop('name'))(self.net.parameters(), **options)
        self.stop = False

    def to_gpus(self):
        if torch.cuda.device_count() > 1:
            self.net = torch.nn.DataParallel(self.net)

    @property
    def raw(self):
        return self.net.module if hasattr(self.net, 'module') else self.net

    def fit(self, callbacks):
        self.callbacks = callbacks
        self.call('on_start')
        for self.epoch in range(self.settings.EPOCHS):
            self.logs = {'epoch': self.epoch, 'loss': self.run('train'), 'valid': self.run('valid')}
            self.call('on_epoch_end')
            if self.stop:
                break

    def call(self, event):
        for callback in self.callbacks:
            getattr(callback, event, lambda learner: None)(self)

    def run(self, phase):
        training = phase == 'train'
        self.net.train(training)
        total, loader = 0.0, self.loaders[phase]
        with torch.set_grad_enabled(training):
            for i, (x, y) in enumerate(tqdm(loader, desc=phase, disable=True)):
                loss = nn.functional.mse_loss(self.net(x.cuda()), y.cuda())
                total += loss.item()
                if training:
                    (loss / self.settings.ACCUMULATE).backward()
                    if (i + 1) % self.settings.ACCUMULATE == 0 or i + 1 == len(loader):
                        self.optimizer.step()
                        self.optimizer.zero_grad()
                        self.call('on_step')
        return total / len(loader)
