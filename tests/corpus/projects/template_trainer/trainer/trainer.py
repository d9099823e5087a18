import numpy as np
import torch

from base import BaseTrainer


class Trainer(BaseTrainer):
    def __init__(self, model, criterion, metric_ftns, config, data_loader, valid_data_loader=None):
        super().__init__(model, criterion, metric_ftns, config)
        self.data_loader = data_loader
        self.valid_data_loader = valid_data_loader
        self.log_step = int(np.sqrt(data_loader.batch_size))

    def _train_epoch(self, epoch):
        self.model.train()
        total_loss, total = 0, np.zeros(len(self.metric_ftns))
        for batch_idx, (data, target) in enumerate(self.data_loader):
            data, target = data.to(self.device), target.to(self.device)
            self.optimizer.zero_grad()
            output = self.model(data)
            loss = self.criterion(output, target)
            loss.backward()
            self.optimizer.step()
            total_loss += loss.item()
            total += [met(output, target) for met in self.metric_ftns]
            if batch_idx % self.log_step == 0:
                self.logger.info('Train Epoch: {} {} Loss: {:.6f}'.format(epoch, batch_idx, loss.item()))
        log = {'loss': total_loss / len(self.data_loader)}
        log.update(zip([met.__name__ for met in self.metric_ftns], total / len(self.data_loader)))
        if self.valid_data_loader is not None:
            log['val_loss'] = self._valid_epoch()
        self.lr_scheduler.step()
        return log

    def _valid_epoch(self):
        self.model.eval()
        total = 0
        with torch.no_grad():
            for data, target in self.valid_data_loader:
                data, target = data.to(self.device), target.to(self.device)
                total += self.criterion(self.model(data), target).item()
        return total / len(self.valid_data_loader)
