from abc import abstractmethod

import torch
from numpy import inf


class BaseTrainer:
    """Base class for all trainers"""

    def __init__(self, model, criterion, metric_ftns, config):
        self.config = config
        self.logger = config.get_logger('trainer')
        self.device, device_ids = self._prepare_device(config['n_gpu'])
        self.model = model.to(self.device)
        if len(device_ids) > 1:
            self.model = torch.nn.DataParallel(model, device_ids=device_ids)
        self.criterion = criterion
        self.metric_ftns = metric_ftns
        trainable = filter(lambda p: p.requires_grad, self.model.parameters())
        self.optimizer = config.init_obj('optimizer', torch.optim, trainable)
        self.lr_scheduler = config.init_obj('lr_scheduler', torch.optim.lr_scheduler, self.optimizer)
        cfg = config['trainer']
        self.epochs, self.save_period, self.early_stop = cfg['epochs'], cfg['save_period'], cfg['early_stop']
        self.mnt_mode, self.mnt_metric = cfg['monitor'].split()
        self.mnt_best = inf if self.mnt_mode == 'min' else -inf
        self.start_epoch = 1
        self.checkpoint_dir = config.save_dir
        if config.resume is not None:
            self._resume_checkpoint(config.resume)

    @abstractmethod
    def _train_epoch(self, epoch):
        raise NotImplementedError

    def train(self):
        not_improved_count = 0
        for epoch in range(self.start_epoch, self.epochs + 1):
            log = {'epoch': epoch}
            log.update(self._train_epoch(epoch))
            for key, value in log.items():
                self.logger.info('    {:15s}: {:.5f}'.format(str(key), value))
            best = False
            improved = (log[self.mnt_metric] <= self.mnt_best) == (self.mnt_mode == 'min')
            if improved:
                self.mnt_best = log[self.mnt_metric]
                not_improved_count = 0
                best = True
            else:
                not_improved_count += 1
            if not_improved_count > self.early_stop:
                break
            if epoch % self.save_period == 0:
                self._save_checkpoint(epoch, save_best=best)

    def _prepare_device(self, n_gpu_use):
        n_gpu = torch.cuda.device_count()
        if n_gpu_use > n_gpu:
            self.logger.warning('only {} GPUs'.format(n_gpu))
            n_gpu_use = n_gpu
        device = torch.device('cuda:0' if n_gpu_use > 0 else 'cpu')
        return device, list(range(n_gpu_use))

    def _save_checkpoint(self, epoch, save_best=False):
        state = {
            'arch': type(self.model).__name__ and self.config['arch']['type'],
            'epoch': epoch,
            'state_dict': self.model.state_dict(),
            'optimizer': self.optimizer.state_dict(),
            'monitor_best': self.mnt_best,
        }
        filename = str(self.checkpoint_dir / 'checkpoint-epoch{}.pth'.format(epoch))
        torch.save(state, filename)
        if save_best:
            torch.save(state, str(self.checkpoint_dir / 'model_best.pth'))

    def _resume_checkpoint(self, resume_path):
        checkpoint = torch.load(str(resume_path))
        self.start_epoch = checkpoint['epoch'] + 1
        self.mnt_best = checkpoint['monitor_best']
        self.model.load_state_dict(checkpoint['state_dict'])
        self.optimizer.load_state_dict(checkpoint['optimizer'])
