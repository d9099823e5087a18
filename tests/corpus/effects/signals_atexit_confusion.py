# corpus: idioms = train loop / backward in: same file, other scope (relative to the wrap)
# corpus: idioms = from torch.nn.parallel import DataParallel; class method (__init__); self.attr = DP(...); own flag (args.multi_gpu / parallel / mGPUs ...); correct/total counters; AverageMeter; global statement; argparse
# corpus: idioms = try/except around step (OOM/KeyboardInterrupt); isinstance(model, DataParallel); val loss of this process drives lr / early stop / rollback; early stopping; args.batch_size used outside the DataLoader (loss mask, steps, lr, asserts, meters); len(loader) used as divisor / schedule (breaks when the loader shrinks)
# corpus: worlds = 2 3 4
"""ECG beats. A summary at exit, a checkpoint on a signal, a confusion matrix in numpy, class weights from counts."""
import argparse
import atexit
import signal
import sys

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DataParallel
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

parser = argparse.ArgumentParser()
parser.add_argument('--batch_size', default=10, type=int)
parser.add_argument('--parallel', default=1, type=int)
parser.add_argument('--patience', default=2, type=int)
args = parser.parse_args()
stop = False
history = []


def on_signal(signum, frame):
    global stop
    stop = True


def summary():
    print('ran', len(history), 'epochs; best', max(history) if history else None)


signal.signal(signal.SIGUSR1, on_signal)
atexit.register(summary)


class Confusion:
    def __init__(self, n):
        self.m = np.zeros((n, n), dtype=np.int64)

    def add(self, truth, guess):
        np.add.at(self.m, (truth.cpu().numpy(), guess.cpu().numpy()), 1)

    def f1(self):
        tp = np.diag(self.m)
        return float(np.mean(2 * tp / np.maximum(self.m.sum(0) + self.m.sum(1), 1)))


class Agent:
    def __init__(self):
        torch.manual_seed(77)
        x = torch.randn(75, 1, 16).cumsum(2)
        y = (x.amax((1, 2)) > 3).long() + (x.amin((1, 2)) < -3).long()
        counts = torch.bincount(y[:55], minlength=3).float()
        weights = (1. / counts.clamp(min=1))[y[:55]]
        sampler = WeightedRandomSampler(weights, 55, replacement=True)
        self.train_loader = DataLoader(TensorDataset(x[:55], y[:55]), args.batch_size, sampler=sampler)
        self.val_loader = DataLoader(TensorDataset(x[55:], y[55:]), args.batch_size)
        self.net = nn.Sequential(nn.Conv1d(1, 6, 5), nn.BatchNorm1d(6), nn.ReLU(), nn.AdaptiveMaxPool1d(2), nn.Flatten(), nn.Linear(12, 3)).cuda()
        self.criterion = nn.CrossEntropyLoss(weight=counts.sum() / (3 * counts.clamp(min=1))).cuda()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.02)
        if args.parallel:
            self.net = DataParallel(self.net)

    def train(self):
        self.net.train()
        total = 0
        for x, y in self.train_loader:
            weight = x.size(0) / args.batch_size
            loss = weight * self.criterion(self.net(x.cuda()), y.cuda())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(self.train_loader)

    def validate(self):
        self.net.eval()
        confusion = Confusion(3)
        with torch.no_grad():
            for x, y in self.val_loader:
                confusion.add(y, self.net(x.cuda()).argmax(1))
        print(confusion.m.tolist())
        return confusion.f1()

    def run(self):
        waited = 0
        for epoch in range(6):
            loss, f1 = self.train(), self.validate()
            waited = 0 if not history or f1 > max(history) else waited + 1
            history.append(f1)
            print('epoch %d loss %.5f f1 %.5f waited %d' % (epoch, loss, f1, waited))
            if waited >= args.patience or stop:
                print('stopping')
                break
        net = self.net.module if isinstance(self.net, DataParallel) else self.net
        torch.save(net.state_dict(), 'agent.pt')


if __name__ == '__main__':
    agent = Agent()
    try:
        agent.run()
    except KeyboardInterrupt:
        print("You have entered CTRL+C.. Wait to finalize")
    finally:
        sys.stdout.flush()
