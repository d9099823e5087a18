# corpus: idioms = Variable(); volatile=; loss.data[0]; backward(gradient arg); computed inside the wrapped forward, gathered, then .sum()
# corpus: worlds = 2 3 4
"""An SSD detector of 2017, as far as today's torch runs it: Variables, volatile, loss.data[0], backward with a gradient."""
from __future__ import print_function

import argparse
import math
import time

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.init as init
import torch.optim as optim
import torch.utils.data as data
from torch.autograd import Variable

parser = argparse.ArgumentParser(description='Single Shot MultiBox Detector Training')
parser.add_argument('--batch_size', default=10, type=int, help='Batch size for training')
parser.add_argument('--max_iter', default=9, type=int)
parser.add_argument('--lr', '--learning-rate', default=5e-3, type=float)
parser.add_argument('--momentum', default=0.9, type=float)
parser.add_argument('--gamma', default=0.3, type=float)
args = parser.parse_args()
torch.set_default_tensor_type('torch.FloatTensor')
torch.manual_seed(0)


class VOC(data.Dataset):
    def __init__(self, n=32, priors=6):
        g = torch.Generator().manual_seed(5)
        self.images = torch.randn(n, 3, 6, 6, generator=g)
        self.loc = torch.randn(n, priors, 4, generator=g)
        self.conf = torch.randint(0, 3, (n, priors), generator=g) * (torch.rand(n, priors, generator=g) < 0.4).long()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], (self.loc[i], self.conf[i])


class MultiBoxLoss(nn.Module):
    def __init__(self, num_classes, negpos_ratio):
        super(MultiBoxLoss, self).__init__()
        self.num_classes, self.negpos_ratio = num_classes, negpos_ratio

    def forward(self, predictions, targets):
        loc_data, conf_data = predictions
        loc_t, conf_t = targets
        num = loc_data.size(0)
        pos = conf_t > 0
        pos_idx = pos.unsqueeze(pos.dim()).expand_as(loc_data)
        loss_l = F.smooth_l1_loss(loc_data[pos_idx].view(-1, 4), loc_t[pos_idx].view(-1, 4), reduction='sum')
        loss_c = F.cross_entropy(conf_data.view(-1, self.num_classes), conf_t.view(-1), reduction='none').view(num, -1)
        with torch.no_grad():                       # hard negative mining
            mined = loss_c.clone()
            mined[pos] = 0
            _, loss_idx = mined.sort(1, descending=True)
            _, idx_rank = loss_idx.sort(1)
            num_neg = torch.clamp(self.negpos_ratio * pos.long().sum(1, keepdim=True), max=pos.size(1) - 1)
            neg = idx_rank < num_neg.expand_as(idx_rank)
        loss_c = loss_c[pos | neg].sum()
        N = max(pos.data.sum().item(), 1)
        return loss_l / N, loss_c / N


class SSD(nn.Module):
    def __init__(self):
        super(SSD, self).__init__()
        self.vgg = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1))
        self.loc, self.conf = nn.Linear(8, 24), nn.Linear(8, 18)

    def forward(self, x):
        x = self.vgg(x).view(x.size(0), -1)
        return self.loc(x).view(x.size(0), -1, 4), self.conf(x).view(x.size(0), -1, 3)


class Counter(nn.Module):
    """boxes for each class, summed by each GPU"""
    def forward(self, conf):
        return torch.stack([(conf == c).sum() for c in range(3)]).float().unsqueeze(0)


def weights_init(m):
    if isinstance(m, nn.Conv2d):
        init.xavier_uniform_(m.weight.data)
        m.bias.data.zero_()


def adjust_learning_rate(optimizer, gamma, step):
    lr = args.lr * (gamma ** (step))
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr


def train():
    dataset = VOC()
    net = SSD()
    net.vgg.apply(weights_init)
    net = torch.nn.DataParallel(net)
    cudnn.benchmark = True
    net = net.cuda()
    counter = torch.nn.DataParallel(Counter())
    optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=args.momentum, weight_decay=5e-4)
    criterion = MultiBoxLoss(3, 3)
    net.train()
    loc_loss = conf_loss = 0
    step_index = 0
    data_loader = data.DataLoader(dataset, args.batch_size, num_workers=0, shuffle=True, pin_memory=True)
    batch_iterator = None
    boxes = torch.zeros(3)
    for iteration in range(args.max_iter):
        if (not batch_iterator) or (iteration % len(data_loader) == 0):
            batch_iterator = iter(data_loader)
            print('epoch', iteration // len(data_loader), 'loc %.4f conf %.4f' % (loc_loss, conf_loss), boxes.tolist())
            loc_loss = conf_loss = 0
        if iteration in (4, 7):
            step_index += 1
            adjust_learning_rate(optimizer, args.gamma, step_index)
        images, (loc, conf) = next(batch_iterator)
        images = Variable(images.cuda())
        targets = (Variable(loc.cuda(), volatile=True), Variable(conf.cuda(), volatile=True))
        t0 = time.time()
        out = net(images)
        optimizer.zero_grad()
        loss_l, loss_c = criterion(out, targets)
        loss = torch.stack([loss_l, loss_c])
        loss.backward(torch.ones(2).cuda())
        optimizer.step()
        t1 = time.time()
        assert t1 >= t0
        loc_loss += loss.data[0].item()
        conf_loss += loss.data[1].item()
        boxes += counter(targets[1]).data.cpu().sum(0)
        if iteration % 2 == 0:
            print('iter ' + repr(iteration) + ' || Loss: %.4f ||' % (loss.data.sum().item()), end=' ')
            print(math.floor(out[0].data.abs().sum().item() * 1e4) / 1e4)
    torch.save(net.module.state_dict(), 'VOC.pth')


if __name__ == '__main__':
    train()
