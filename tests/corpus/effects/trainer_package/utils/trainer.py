import os

import torch
from torch.utils.tensorboard import SummaryWriter


class Trainer:
    def __init__(self, model, loaders, config):
        self.model, self.loaders, self.config = model, loaders, config
        self.optimizer_G, self.optimizer_D = model.module.optimizer_G, model.module.optimizer_D
        self.writer = SummaryWriter(config['log_dir'])
        self.best, self.step = None, 0

    def train(self):
        for epoch in range(self.config['epochs']):
            self.model.train()
            for label, image in self.loaders['train']:
                losses, fake = self.model(label.cuda(), image.cuda())
                loss_G, loss_D = (torch.mean(x) for x in losses)
                self.optimizer_G.zero_grad()
                loss_G.backward()
                self.optimizer_G.step()
                self.optimizer_D.zero_grad()
                loss_D.backward()
                self.optimizer_D.step()
                self.step += 1
                self.writer.add_scalar('G', loss_G.item(), self.step)
                print('epoch %d step %d G %.5f D %.5f' % (epoch, self.step, loss_G.item(), loss_D.item()))
            self.validate(epoch)

    def validate(self, epoch):
        self.model.eval()
        with torch.no_grad():
            val = sum((self.model.module.netG(a.cuda()) - b.cuda()).abs().sum().item() for a, b in self.loaders['val'])
        if self.best is None or val < self.best:
            self.best = val
            torch.save(self.model.module.netG.state_dict(), os.path.join('saved', 'G.pth'))
        else:
            for optimizer in (self.optimizer_G, self.optimizer_D):
                optimizer.param_groups[0]['lr'] *= 0.5
        print('epoch %d val %.5f' % (epoch, val))
