# corpus: idioms = torch.nn.DataParallel; CUDA_VISIBLE_DEVICES set in the script; set_device/default tensor type; .cuda(arg); non_blocking; device_count() used; device_ids=range(device_count()); function main/train/run; len(gpu_ids)/num_gpus from config; unconditional; batch size multiplied by the number of GPUs in the script; next(self.parameters()) reached from forward (StopIteration in DP replicas, torch>=1.5); EMA / second copy of weights; raw model kept and used beside the wrapper (optimizer, state_dict, eval, EMA); new name, raw model kept under another name; Variable(); p.data edits outside optimizer
# corpus: worlds = 2 3
"""A detector of 2018: everything is a cuda.FloatTensor by default, the devices come from the environment."""
import os

os.environ.setdefault('CUDA_DEVICE_ORDER', 'PCI_BUS_ID')
import argparse

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable

parser = argparse.ArgumentParser(description='Single Shot Detector Training With Pytorch')
parser.add_argument('--batch_per_gpu', default=4, type=int)
parser.add_argument('--gpu', default=0, type=int)
parser.add_argument('--max_iter', default=8, type=int)
parser.add_argument('--cuda', default=True, type=bool)
parser.add_argument('--lr', default=1e-2, type=float)
args = parser.parse_args()

if torch.cuda.is_available():
    torch.cuda.set_device(args.gpu)
    torch.set_default_tensor_type('torch.cuda.FloatTensor')
else:
    torch.set_default_tensor_type('torch.FloatTensor')


class L2Norm(nn.Module):
    def __init__(self, n_channels, scale):
        super(L2Norm, self).__init__()
        self.weight = nn.Parameter(torch.Tensor(n_channels))
        nn.init.constant_(self.weight, scale)

    def forward(self, x):
        norm = x.pow(2).sum(dim=1, keepdim=True).sqrt() + 1e-10
        return self.weight.unsqueeze(0).unsqueeze(2).unsqueeze(3).expand_as(x) * torch.div(x, norm)


class SSD(nn.Module):
    def __init__(self):
        super(SSD, self).__init__()
        self.vgg = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.L2Norm = L2Norm(6, 5)
        self.loc, self.conf = nn.Conv2d(6, 4, 3, padding=1), nn.Conv2d(6, 3, 3, padding=1)
        self.priors = torch.rand(9, 4, generator=None) * 0 + torch.arange(36.).view(9, 4) / 36

    def is_half(self):
        return all(p.dtype == torch.float16 for p in self.parameters()) and len(list(self.parameters())) > 0

    def forward(self, x):
        assert not self.is_half()
        h = self.L2Norm(self.vgg(x))
        anchors = torch.zeros(9, 4) + 0.5
        return (self.loc(h).permute(0, 2, 3, 1).reshape(x.size(0), -1, 4) + anchors.to(x.device),
                self.conf(h).permute(0, 2, 3, 1).reshape(x.size(0), -1, 3), self.priors)


class MultiBoxLoss(nn.Module):
    def forward(self, predictions, targets):
        loc, conf, priors = predictions
        priors = priors[:loc.size(1)]
        t_loc, t_conf = targets
        pos = t_conf > 0
        loss_l = F.smooth_l1_loss(loc[pos], (t_loc - priors.to(t_loc.device))[pos], reduction='sum')
        loss_c = F.cross_entropy(conf.reshape(-1, 3), t_conf.reshape(-1), reduction='none').view(conf.size(0), -1)
        neg = loss_c.clone().detach().masked_fill(pos, 0)
        rank = neg.sort(1, descending=True)[1].sort(1)[1]
        hard = rank < (3 * pos.long().sum(1, keepdim=True)).clamp(max=8)
        n = pos.long().sum().clamp(min=1).float()
        return loss_l / n, loss_c[pos | hard].sum() / n


def train():
    torch.manual_seed(6)
    ssd_net = SSD()
    net = torch.nn.DataParallel(ssd_net, device_ids=range(torch.cuda.device_count()))
    cudnn.benchmark = True
    net = net.cuda(args.gpu)
    ema = {k: v.clone() for k, v in ssd_net.state_dict().items()}
    optimizer = torch.optim.SGD(ssd_net.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    criterion = MultiBoxLoss()
    batch_size = args.batch_per_gpu * torch.cuda.device_count()
    print('batch', batch_size)
    g = torch.Generator(device='cpu').manual_seed(4)
    total = 40
    images = torch.randn(total, 3, 6, 6, generator=g, device='cpu')
    locs = torch.rand(total, 9, 4, generator=g, device='cpu')
    confs = (torch.rand(total, 9, generator=g, device='cpu') * 3.4 - 0.7).clamp(min=0).long()
    for iteration in range(args.max_iter):
        lo = (iteration * batch_size) % total
        sl = slice(lo, lo + batch_size)
        x = Variable(images[sl].cuda(args.gpu, non_blocking=True))
        targets = [Variable(locs[sl].cuda()), confs[sl].cuda(args.gpu)]
        out = net(x)
        optimizer.zero_grad()
        loss_l, loss_c = criterion(out, targets)
        loss = loss_l + loss_c
        loss.backward()
        for p in ssd_net.parameters():
            p.grad.data.clamp_(-1, 1)
        optimizer.step()
        for k, v in ssd_net.state_dict().items():
            ema[k].mul_(0.5).add_(v, alpha=0.5)
        if iteration % 2 == 0:
            print('iter ' + repr(iteration) + ' || Loss: %.4f (%.4f, %.4f) ||' % (loss.item(), loss_l.item(), loss_c.item()))
    torch.save(ssd_net.state_dict(), 'ssd.pth')
    torch.save(ema, 'ema.pth')


if __name__ == '__main__':
    train()
