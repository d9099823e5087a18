import copy
import csv
import os

import torch


class WeightAverage:
    def __init__(self, decay):
        self.decay = decay

    def on_start(self, learner):
        self.shadow = copy.deepcopy(learner.raw.state_dict())

    def on_step(self, learner):
        for name, value in learner.raw.state_dict().items():
            self.shadow[name].mul_(self.decay).add_(value, alpha=1 - self.decay)

    def on_epoch_end(self, learner):
        learner.logs['distance'] = sum((value - self.shadow[name]).abs().sum().item() for name, value in learner.raw.state_dict().items())


class CSVLogger:
    def __init__(self, path):
        self.path = path

    def on_start(self, learner):
        self.file = open(self.path, 'w', newline='')
        self.writer = None

    def on_epoch_end(self, learner):
        if self.writer is None:
            self.writer = csv.DictWriter(self.file, fieldnames=list(learner.logs))
            self.writer.writeheader()
        self.writer.writerow(learner.logs)
        self.file.flush()


class Checkpoint:
    def __init__(self, folder):
        self.folder, self.best = folder, float('inf')

    def on_start(self, learner):
        os.makedirs(self.folder, exist_ok=True)

    def on_epoch_end(self, learner):
        if learner.logs['valid'] < self.best:
            self.best = learner.logs['valid']
            torch.save(learner.raw.state_dict(), os.path.join(self.folder, 'best_%d.pt' % learner.epoch))


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float('inf'), 0

    def on_epoch_end(self, learner):
        self.bad = 0 if learner.logs['valid'] < self.best else self.bad + 1
        self.best = min(self.best, learner.logs['valid'])
        learner.stop = self.bad > self.patience
        print(learner.logs)
