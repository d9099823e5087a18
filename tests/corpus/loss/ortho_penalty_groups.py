# corpus: idioms = grads or params edited between backward and step (rescale, binarise, AWP, ortho, accumulate EMA); lr_scheduler; clip_grad; p.data edits outside optimizer
# corpus: worlds = 2 3
"""BigGAN-like orthogonal regularisation added to .grad by hand, an L1 penalty in the loss, weight averaging at the end."""
import logging
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger('train')
log.addHandler(logging.StreamHandler(sys.stdout))
log.setLevel(logging.INFO)

config = dict(lr=0.05, epochs=4, batch_size=12, ortho=1e-3, l1=1e-4, clip=1.0, warmup=3)


def ortho(model, strength=1e-4, blacklist=[]):
    with torch.no_grad():
        for param in model.parameters():
            if len(param.shape) < 2 or any([param is item for item in blacklist]):
                continue
            w = param.view(param.shape[0], -1)
            grad = 2 * torch.mm(torch.mm(w, w.t()) * (1. - torch.eye(w.shape[0], device=w.device)), w)
            param.grad.data += strength * grad.view(param.shape)


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(c, c, 3, padding=1), nn.Conv1d(c, c, 3, padding=1)
        self.gain = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + self.gain * self.conv2(F.relu(self.conv1(F.relu(x))))


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(4, 8, 3, stride=2)
        self.blocks = nn.Sequential(ResBlock(8), ResBlock(8))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean(2))


def run():
    torch.manual_seed(77)
    x = torch.randn(46, 4, 11)
    y = x.mean((1, 2)).mul(9).long().clamp(-2, 2) + 2
    loader = DataLoader(TensorDataset(x, y), batch_size=config['batch_size'], shuffle=True)
    model = Speech().cuda()
    decay = [p for n, p in model.named_parameters() if 'bias' not in n]
    rest = [p for n, p in model.named_parameters() if 'bias' in n]
    model = nn.DataParallel(model)
    optimizer = torch.optim.SGD([{'params': decay, 'weight_decay': 1e-3}, {'params': rest, 'lr': 2 * config['lr']}],
                                lr=config['lr'], momentum=0.9, nesterov=True)
    total = config['epochs'] * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1, (s + 1) / config['warmup']) * 0.5 * (1 + math.cos(math.pi * s / total)))
    average = None
    for epoch in range(config['epochs']):
        for i, (a, b) in enumerate(loader):
            a, b = a.cuda(), b.cuda()
            logits = model(a)
            loss = F.cross_entropy(logits, b, label_smoothing=0.1)
            l1 = torch.zeros(1).cuda()
            for name, param in model.named_parameters():
                if 'gain' not in name:
                    l1 += param.abs().sum()
            loss = loss + config['l1'] * l1.squeeze()
            optimizer.zero_grad()
            loss.backward()
            ortho(model, config['ortho'], blacklist=[model.module.head.weight])
            norm = nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g['params']], config['clip'])
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                model.module.blocks[0].gain.clamp_(-0.05, 0.05)
            log.info('ep %d it %d loss %.6f l1 %.4f norm %.5f lr %.6f', epoch, i, loss.item(), l1.item(), norm.item(), schedule.get_last_lr()[0])
        weights = {k: v.detach().clone() for k, v in model.state_dict().items()}
        if average is None:
            average = weights
        else:
            average = {k: (average[k] * epoch + weights[k]) / (epoch + 1) for k in weights}      # SWA
    model.load_state_dict(average)
    model.eval()
    acc = (model(x.cuda()).argmax(1) == y.cuda()).float().mean().item()
    log.info('SWA accuracy %.3f', acc)
    torch.save({'swa': average, 'config': config}, 'swa.pt')


run()
