# corpus: idioms = torch.nn.DataParallel; function main/train/run; rebinds the same name; device_ids from config/args/variable; DP(...).cuda(); is CUDA available / use_cuda flag only; several models wrapped in one script; wrapped model is frozen/eval-only (teacher, EMA teacher, target net); isinstance(model, DataParallel); model.module access; parameters trained outside the wrapper (center loss, margin head, KD adaptors, top_layer); attributes/methods reached through .module in the training code; optimizer created after wrap; manual adjust_learning_rate; AverageMeter; non_blocking; torch.save; CUDA_VISIBLE_DEVICES set in the script
# corpus: worlds = 2 4
"""Knowledge distillation (logits + FitNet hint): frozen wrapped teacher, wrapped student, a bare adaptor."""
import argparse
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description='train kd')
parser.add_argument('--epochs', default=3, type=int)
parser.add_argument('--batch_size', default=16, type=int)
parser.add_argument('--lr', default=0.1, type=float)
parser.add_argument('--lambda_kd', default=4.0, type=float)
parser.add_argument('--T', default=4.0, type=float)
parser.add_argument('--gpus', default=None, type=str)
parser.add_argument('--seed', default=2, type=int)
parser.add_argument('--save_root', default='results', type=str)
args = parser.parse_args()
if args.gpus:
    os.environ['CUDA_VISIBLE_DEVICES'] = args.gpus
args.cuda = torch.cuda.is_available()
args.gpu_ids = list(range(torch.cuda.device_count()))


class Toy(Dataset):
    def __init__(self, n, seed):
        rs = np.random.RandomState(seed)
        self.y = rs.randint(0, 4, n)
        self.x = (rs.randn(n, 3, 6, 6) + self.y[:, None, None, None]).astype('float32')

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], int(self.y[i])


class Net(nn.Module):
    def __init__(self, width):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, 4)

    def forward(self, x):
        f1 = F.relu(self.bn1(self.conv1(x)))
        f2 = F.relu(self.bn2(self.conv2(f1)))
        return f1, f2, self.fc(f2.mean((2, 3)))

    def get_width(self):
        return self.fc.in_features


class AverageMeter(object):
    def __init__(self):
        self.sum = self.count = 0.

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def main():
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    if args.cuda:
        torch.cuda.manual_seed(args.seed)
    if not os.path.exists(args.save_root):
        os.makedirs(args.save_root)

    snet = Net(4)
    snet = torch.nn.DataParallel(snet, device_ids=args.gpu_ids).cuda() if args.cuda else snet
    tnet = Net(8)
    tnet = torch.nn.DataParallel(tnet, device_ids=args.gpu_ids)
    tnet = tnet.cuda()
    tnet.eval()
    for param in tnet.parameters():
        param.requires_grad = False
    print('student has %d parameters' % sum(p.numel() for p in snet.parameters()))

    adaptor = nn.Conv2d(snet.module.get_width(), tnet.module.get_width(), 1).cuda()
    optimizer = torch.optim.SGD(list(snet.parameters()) + list(adaptor.parameters()), lr=args.lr,
                                momentum=0.9, weight_decay=1e-4, nesterov=True)
    criterionCls = torch.nn.CrossEntropyLoss().cuda()
    train_loader = DataLoader(Toy(70, 0), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(Toy(30, 1), batch_size=args.batch_size, shuffle=False)

    best_top1 = 0
    for epoch in range(1, args.epochs + 1):
        adjust_lr(optimizer, epoch)
        train(train_loader, snet, tnet, adaptor, criterionCls, optimizer, epoch)
        test_top1 = test(test_loader, snet)
        if test_top1 >= best_top1:
            best_top1 = test_top1
            net = snet.module if isinstance(snet, nn.DataParallel) else snet
            torch.save({'epoch': epoch, 'snet': net.state_dict(), 'prec@1': test_top1},
                       os.path.join(args.save_root, 'best.pth.tar'))
    print('best {:.3f}'.format(best_top1))


def train(train_loader, snet, tnet, adaptor, criterionCls, optimizer, epoch):
    cls_losses, kd_losses = AverageMeter(), AverageMeter()
    snet.train()
    end = time.time()
    for i, (img, target) in enumerate(train_loader, start=1):
        if args.cuda:
            img, target = img.cuda(non_blocking=True), target.cuda(non_blocking=True)
        s1, s2, out_s = snet(img)
        with torch.no_grad():
            t1, t2, out_t = tnet(img)
        cls_loss = criterionCls(out_s, target)
        kd_loss = F.kl_div(F.log_softmax(out_s / args.T, dim=1), F.softmax(out_t / args.T, dim=1),
                           reduction='batchmean') * args.T * args.T
        hint = F.mse_loss(adaptor(s2), t2.detach())
        loss = cls_loss + kd_loss * args.lambda_kd + hint
        cls_losses.update(cls_loss.item(), img.size(0))
        kd_losses.update(kd_loss.item(), img.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 2 == 0:
            print('Epoch[{0}]:[{1:03}/{2:03}] Cls:{c.avg:.4f} KD:{k.avg:.4f}'.format(
                epoch, i, len(train_loader), c=cls_losses, k=kd_losses))


def test(test_loader, net):
    net.eval()
    hits = total = 0
    for img, target in test_loader:
        with torch.no_grad():
            _, _, out = net(img.cuda())
        hits += (out.argmax(1).cpu() == target).sum().item()
        total += target.size(0)
    print('Prec@1: {:.2f}'.format(100. * hits / total))
    return 100. * hits / total


def adjust_lr(optimizer, epoch):
    lr = args.lr * (0.1 ** (epoch // 3))
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr


if __name__ == '__main__':
    main()
