import os
from collections import OrderedDict

import torch

from . import networks


class BaseModel():
    def __init__(self, opt):
        self.opt = opt
        self.gpu_ids = opt.gpu_ids
        self.device = torch.device('cuda:{}'.format(self.gpu_ids[0])) if self.gpu_ids else torch.device('cpu')
        self.save_dir = os.path.join(opt.checkpoints_dir, opt.name)
        self.loss_names, self.model_names, self.optimizers = [], [], []

    def setup(self, opt):
        self.schedulers = [torch.optim.lr_scheduler.StepLR(one, 1, 0.5) for one in self.optimizers]
        for name in self.model_names:
            net = getattr(self, 'net' + name)
            print('[Network %s] parameters: %d' % (name, sum(p.numel() for p in net.parameters())))

    def init(self, name, *args):
        setattr(self, 'net' + name, networks.define(name[0], *args, gpu_ids=self.gpu_ids))

    def update_learning_rate(self):
        for scheduler in self.schedulers:
            scheduler.step()

    def get_current_losses(self):
        return OrderedDict((name, float(getattr(self, 'loss_' + name))) for name in self.loss_names)

    def save_networks(self, which):
        for name in self.model_names:
            net = getattr(self, 'net' + name)
            path = os.path.join(self.save_dir, '%s_net_%s.pth' % (which, name))
            if len(self.gpu_ids) > 0 and torch.cuda.is_available():
                torch.save(net.module.cpu().state_dict(), path)
                net.cuda(self.gpu_ids[0])
            else:
                torch.save(net.cpu().state_dict(), path)

    def set_requires_grad(self, nets, requires_grad=False):
        for net in nets:
            for param in net.parameters():
                param.requires_grad = requires_grad
