# corpus: idioms = torch.nn.DataParallel; computed inside the wrapped forward, gathered, then .mean(); dict / list / non-tensor / None / raw samples passed to the wrapped forward; nested function inside main(); class method (other); self.attr = DP(...); mean over a data-dependent count (ignore_index, mask, num_pos, padding) - replica level; device_ids from config/args/variable; len(gpu_ids)/num_gpus from config; tensors left on the CPU, DP.scatter does the copy; attributes/methods reached through .module in the training code; .cuda()/'cuda' without index inside forward(); not distributed (DDP branch beside); DP(...).cuda()
# corpus: worlds = 2 3 4
"""A detector which takes a batch as a dict and gives its losses: ModelWithLoss, in the manner of CenterNet."""
import argparse
from collections import OrderedDict, namedtuple

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

Stats = namedtuple('Stats', ['hm_loss', 'wh_loss', 'n_pos'])


class Boxes(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(9)
        self.img = torch.randn(n, 3, 8, 8, generator=g)
        self.hm = (torch.rand(n, 2, 4, 4, generator=g) > 0.85).float()
        self.ind = torch.randint(0, 16, (n, 3), generator=g)
        self.mask = torch.rand(n, 3, generator=g) > 0.4
        self.wh = torch.rand(n, 3, 2, generator=g)

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        return {'input': self.img[i], 'hm': self.hm[i], 'reg_mask': self.mask[i].byte(), 'ind': self.ind[i],
                'wh': self.wh[i], 'meta': {'img_id': i, 'name': 'img_%03d.jpg' % i}}


class DLA(nn.Module):
    def __init__(self, heads):
        super(DLA, self).__init__()
        self.heads = heads
        self.base = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU())
        for head in heads:
            self.__setattr__(head, nn.Conv2d(6, heads[head], 1))

    def forward(self, x):
        f = self.base(x)
        return [{head: self.__getattr__(head)(f) for head in self.heads}]


class CtdetLoss(nn.Module):
    def __init__(self, opt):
        super(CtdetLoss, self).__init__()
        self.opt = opt
        self.register_buffer('scale', torch.ones(1))

    def forward(self, outputs, batch):
        hm = outputs[0]['hm'].sigmoid().clamp(1e-4, 1 - 1e-4)
        pos = batch['hm'].eq(1).float()
        n_pos = pos.sum()
        hm_loss = -(torch.log(hm) * (1 - hm) ** 2 * pos + torch.log(1 - hm) * hm ** 2 * (1 - pos)).sum() / (n_pos + 1)
        wh = outputs[0]['wh'].flatten(2).permute(0, 2, 1)
        wh = wh.gather(1, batch['ind'].unsqueeze(2).expand(-1, -1, 2))
        mask = batch['reg_mask'].unsqueeze(2).expand_as(wh).float()
        eps = torch.tensor(1e-4).cuda()
        wh_loss = ((wh - batch['wh']).abs() * mask).sum() / (mask.sum() + eps)
        loss = hm_loss * self.scale.squeeze() + self.opt.wh_weight * wh_loss
        return loss, Stats(hm_loss, wh_loss, n_pos)


class ModelWithLoss(torch.nn.Module):
    def __init__(self, model, loss):
        super(ModelWithLoss, self).__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch, epoch=None, extras=None):
        outputs = self.model(batch['input'])
        loss, loss_stats = self.loss(outputs, batch)
        if extras is not None and extras.get('names') is not None:
            assert len(extras['names']) > 0
        return outputs[-1], loss, OrderedDict(loss=loss, stats=loss_stats, none=None)


class CtdetTrainer(object):
    def __init__(self, opt, model, optimizer=None):
        self.opt = opt
        self.optimizer = optimizer
        self.model_with_loss = ModelWithLoss(model, CtdetLoss(opt))

    def set_device(self, gpus, device):
        if len(gpus) > 1:
            self.model_with_loss = torch.nn.DataParallel(self.model_with_loss, device_ids=gpus).cuda()
        else:
            self.model_with_loss = self.model_with_loss.to(device)
        for state in self.optimizer.state.values():
            for k, v in state.items():
                if isinstance(v, torch.Tensor):
                    state[k] = v.to(device=device, non_blocking=True)

    def run_epoch(self, phase, epoch, data_loader):
        model_with_loss = self.model_with_loss
        if phase == 'train':
            model_with_loss.train()
        else:
            if len(self.opt.gpus) > 1:
                model_with_loss = self.model_with_loss.module
            model_with_loss.eval()
        sums = {}
        for iter_id, batch in enumerate(data_loader):
            for k in batch:
                if k != 'meta':
                    batch[k] = batch[k].to(device=self.opt.device, non_blocking=True)
            output, loss, loss_stats = model_with_loss(batch, epoch=epoch, extras={'names': batch['meta']['name']})
            loss = loss.mean()
            if phase == 'train':
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            for name, v in zip(Stats._fields, loss_stats['stats']):
                sums[name] = sums.get(name, 0) + v.mean().item() * batch['input'].size(0)
            if iter_id % 2 == 0:
                print('{phase}: [{0}][{1}/{2}] loss {3:.4f} parts {4} hm {5}'.format(
                    epoch, iter_id, len(data_loader), loss.item(), loss_stats['stats'].n_pos.view(-1).tolist(),
                    tuple(output['hm'].shape), phase=phase))
        return {k: round(v / len(data_loader.dataset), 4) for k, v in sums.items()}


def main(opt):
    torch.manual_seed(opt.seed)

    def create_model(heads):
        return DLA(heads)

    opt.gpus = list(range(torch.cuda.device_count()))
    opt.device = torch.device('cuda' if opt.gpus[0] >= 0 else 'cpu')
    model = create_model({'hm': 2, 'wh': 2})
    optimizer = torch.optim.Adam(model.parameters(), opt.lr)
    trainer = CtdetTrainer(opt, model, optimizer)
    trainer.set_device(opt.gpus, opt.device)
    train_loader = DataLoader(Boxes(31), batch_size=opt.batch_size, shuffle=True)
    val_loader = DataLoader(Boxes(5), batch_size=2)
    for epoch in range(1, opt.num_epochs + 1):
        print(trainer.run_epoch('train', epoch, train_loader))
        with torch.no_grad():
            print(trainer.run_epoch('val', epoch, val_loader))
        torch.save({'epoch': epoch, 'state_dict': model.state_dict()}, 'model_last.pth')


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--batch_size', type=int, default=8)
    parser.add_argument('--num_epochs', type=int, default=3)
    parser.add_argument('--lr', type=float, default=1.25e-2)
    parser.add_argument('--wh_weight', type=float, default=0.1)
    parser.add_argument('--seed', type=int, default=317)
    main(parser.parse_args())
