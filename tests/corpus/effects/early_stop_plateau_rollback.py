# corpus: idioms = train loop / backward in: same file, other scope (relative to the wrap); DataLoader built in: same file, other scope (relative to the wrap)
# corpus: idioms = nn.DataParallel; class method (__init__); self.attr = DP(...); is CUDA available / use_cuda flag only; val loss of this process drives lr / early stop / rollback; early stopping
# corpus: idioms = ReduceLROnPlateau/metric driven; best selection; text/csv/json log file; yaml/yacs/json config; tensors left on the CPU, DP.scatter does the copy; model.module access; module.state_dict() (no prefix); torch.load; makedirs/mkdir
# corpus: worlds = 2 3 4
"""House prices, with a Trainer class: early stopping, plateau, and back to the best weights when it gets worse."""
import copy
import json
import os

import numpy as np
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset

CONFIG = {'hidden': 16, 'lr': 0.3, 'batch': 12, 'patience': 3, 'max_epochs': 12, 'save_dir': 'saved'}


class EarlyStopping:
    """Early stops the training if validation loss doesn't improve after a given patience."""

    def __init__(self, patience=7, verbose=False, delta=0, path='checkpoint.pt'):
        self.patience, self.verbose, self.delta, self.path = patience, verbose, delta, path
        self.counter, self.best_score, self.early_stop, self.val_loss_min = 0, None, False, np.inf

    def __call__(self, val_loss, model):
        score = -val_loss
        if self.best_score is None or score >= self.best_score + self.delta:
            self.best_score = score
            self.save_checkpoint(val_loss, model)
            self.counter = 0
        else:
            self.counter += 1
            print(f'EarlyStopping counter: {self.counter} out of {self.patience}')
            self.early_stop = self.counter >= self.patience

    def save_checkpoint(self, val_loss, model):
        if self.verbose:
            print(f'Validation loss decreased ({self.val_loss_min:.6f} --> {val_loss:.6f}).  Saving model ...')
        torch.save(model.module.state_dict() if hasattr(model, 'module') else model.state_dict(), self.path)
        self.val_loss_min = val_loss


class Trainer:
    def __init__(self, config):
        self.config = config
        if not os.path.isdir(config['save_dir']):
            os.makedirs(config['save_dir'])
        self.device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')
        model = nn.Sequential(nn.Linear(6, config['hidden']), nn.BatchNorm1d(config['hidden']), nn.ReLU(),
                              nn.Dropout(0.1), nn.Linear(config['hidden'], 1))
        self.model = model.to(self.device)
        if torch.cuda.is_available():
            self.model = nn.DataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config['lr'], momentum=0.5)
        self.scheduler = ReduceLROnPlateau(self.optimizer, 'min', factor=0.3, patience=1)
        self.stopper = EarlyStopping(config['patience'], True, path=os.path.join(config['save_dir'], 'best.pt'))
        self.history = []
        self._data()

    def _data(self):
        gen = torch.Generator().manual_seed(12)
        x = torch.randn(66, 6, generator=gen)
        y = (x[:, :1] * x[:, 1:2]).sin() + 0.5 * torch.randn(66, 1, generator=gen)
        self.train_loader = DataLoader(TensorDataset(x[:40], y[:40]), batch_size=self.config['batch'], shuffle=True)
        self.valid_loader = DataLoader(TensorDataset(x[40:], y[40:]), batch_size=7)

    def _epoch(self, loader, train):
        self.model.train(train)
        total, n = 0.0, 0
        with torch.set_grad_enabled(train):
            for x, y in loader:
                if len(x) < 5 and train:
                    break
                loss = nn.functional.mse_loss(self.model(x), y.to(self.device))
                if train:
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
                total, n = total + loss.item() * len(x), n + len(x)
        return total / n

    def fit(self):
        best = copy.deepcopy(self.model.state_dict())
        for epoch in range(self.config['max_epochs']):
            train, valid = self._epoch(self.train_loader, True), self._epoch(self.valid_loader, False)
            lr = self.optimizer.param_groups[0]['lr']
            self.history.append({'epoch': epoch, 'train': train, 'valid': valid, 'lr': lr})
            if valid <= min(h['valid'] for h in self.history):
                best = copy.deepcopy(self.model.state_dict())
            elif valid > 1.1 * min(h['valid'] for h in self.history):
                print('epoch', epoch, 'got worse, back to the best weights')
                self.model.load_state_dict(best)
            self.scheduler.step(valid)
            self.stopper(valid, self.model)
            if self.stopper.early_stop:
                print('Early stopping at', epoch)
                break
        self.model.module.load_state_dict(torch.load(os.path.join(self.config['save_dir'], 'best.pt')))
        print('final %.6f' % self._epoch(self.valid_loader, False))
        with open(os.path.join(self.config['save_dir'], 'history.json'), 'w') as f:
            json.dump(self.history, f, indent=1)


torch.manual_seed(0)
Trainer(CONFIG).fit()
