# corpus: idioms = nn.DataParallel; other helper function; name = DP(Constructor(...)); DP(...).cuda(); several models wrapped in one script; wrapped model is frozen/eval-only (teacher, EMA teacher, target net); EMA / second copy of weights; returned directly from helper; isinstance(model, DataParallel); volatile=; two or more backward() before one step, or forward twice before backward; several optimizers; try/except around step (OOM/KeyboardInterrupt); sum / none reduction normalised by hand
# corpus: worlds = 2 4
"""Dual students: two wrapped networks teach each other, and swap roles; an EMA copy of each is kept as a teacher."""
import argparse
import logging
import re
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument('--epochs', type=int, default=3)
parser.add_argument('-b', '--batch-size', type=int, default=12)
parser.add_argument('--consistency', type=float, default=1.5)
parser.add_argument('--ema-decay', type=float, default=0.8)
args = parser.parse_args()
LOG = logging.getLogger('main')
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format='%(levelname)s - %(message)s')
NO_LABEL = -1
global_step = 0


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.drop = nn.Dropout(0.3)
        self.fc1, self.fc2 = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x):
        h = self.drop(self.features(x))
        return self.fc1(h), self.fc2(h)


def create_model(ema=False):
    LOG.info('=> creating %smodel', 'EMA ' if ema else '')
    model = nn.DataParallel(ConvNet()).cuda()
    if ema:
        for param in model.parameters():
            param.detach_()
    return model


def update_ema_variables(model, ema_model, alpha, global_step):
    alpha = min(1 - 1 / (global_step + 1), alpha)
    for ema_param, param in zip(ema_model.parameters(), model.parameters()):
        ema_param.data.mul_(alpha).add_(param.data, alpha=1 - alpha)


def symmetric_mse_loss(a, b):
    return torch.sum((a - b) ** 2) / a.size(1)


def step(student, peer, ema, optimizer, x, x2, y):
    global global_step
    logit, cons = student(x)
    with torch.no_grad():
        ema_logit, _ = ema(x2)
        peer_logit, _ = peer(x2)
    n = x.size(0)
    class_loss = F.cross_entropy(logit, y, reduction='sum', ignore_index=NO_LABEL) / n
    target = ema_logit if global_step % 2 else peer_logit
    loss = class_loss + args.consistency * symmetric_mse_loss(cons.softmax(1), target.softmax(1)) / n
    res = 0.01 * symmetric_mse_loss(logit, cons) / n
    optimizer.zero_grad()
    (loss + res).backward()
    optimizer.step()
    global_step += 1
    update_ema_variables(student, ema, args.ema_decay, global_step)
    return loss.item()


def validate(loader, model):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x.cuda())[0].argmax(1).cpu() == y).sum().item()
    model.train()
    return 100. * right / len(loader.dataset)


torch.manual_seed(3)
g = torch.Generator().manual_seed(31)
y = torch.randint(0, 3, (44,), generator=g)
x = torch.randn(44, 1, 6, 6, generator=g) + y.view(-1, 1, 1, 1).float()
y_train = y.clone()
y_train[::3] = NO_LABEL
train_loader = DataLoader(TensorDataset(x, y_train), args.batch_size, shuffle=True)
eval_loader = DataLoader(TensorDataset(x[:14], y[:14]), args.batch_size)
left, right = create_model(), create_model()
ema_left, ema_right = create_model(ema=True), create_model(ema=True)
optims = {id(left): torch.optim.SGD(left.parameters(), 0.05, momentum=0.9, weight_decay=1e-3, nesterov=True),
          id(right): torch.optim.SGD(right.parameters(), 0.05, momentum=0.9, weight_decay=1e-3, nesterov=True)}
student, peer, ema, ema_peer = left, right, ema_left, ema_right
try:
    for epoch in range(args.epochs):
        for i, (inp, target) in enumerate(train_loader):
            inp, target = inp.cuda(), target.cuda()
            noisy = inp + 0.1 * torch.randn_like(inp)
            loss = step(student, peer, ema, optims[id(student)], inp, noisy, target)
            # roles change
            student, peer, ema, ema_peer = peer, student, ema_peer, ema
            if i % 2 == 0:
                LOG.info('Epoch: [%d][%d/%d] Cons+Class %.5f', epoch, i, len(train_loader), loss)
        LOG.info('prec %.2f %.2f ema %.2f', validate(eval_loader, left), validate(eval_loader, right), validate(eval_loader, ema_left))
except KeyboardInterrupt:
    LOG.info('stopped')
net = left.module if isinstance(left, torch.nn.DataParallel) else left
torch.save({re.sub('^module.', '', k): v for k, v in ema_left.state_dict().items()}, 'ema.ckpt')
torch.save(net.state_dict(), 'left.ckpt')
