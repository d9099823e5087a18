# corpus: idioms = torch.nn.DataParallel; function main/train/run; rebinds the same name; not distributed (DDP branch beside); has a DDP branch beside DP; args.local_rank/world_size already; .cuda(arg); non_blocking
# corpus: idioms = sampler=; argparse; set_device/default tensor type; global statement; best selection; torch.save; AverageMeter; manual adjust_learning_rate; cudnn flags; same model wrapped at more than one place (exclusive branches, train/test functions, re-wrap)
# corpus: worlds = 2 3 4
"""The classification script that everybody started from: its own DDP mode by a flag, DataParallel without it."""
import argparse
import os
import shutil
import time

import torch
import torch.backends.cudnn as cudnn
import torch.distributed as dist
import torch.nn as nn
import torch.nn.parallel
import torch.optim
import torch.utils.data
import torch.utils.data.distributed

parser = argparse.ArgumentParser(description='PyTorch Training')
parser.add_argument('--arch', default='small')
parser.add_argument('--epochs', default=2, type=int)
parser.add_argument('-b', '--batch-size', default=10, type=int)
parser.add_argument('--lr', default=0.1, type=float)
parser.add_argument('--print-freq', default=2, type=int)
parser.add_argument('--world-size', default=int(os.environ.get('WORLD_SIZE', 1)), type=int)
parser.add_argument('--local_rank', default=0, type=int)
parser.add_argument('--dist-backend', default='nccl')
parser.add_argument('--gpu', default=None, type=int)
args = parser.parse_args()
best_prec1 = 0


def reduce_tensor(tensor):
    rt = tensor.clone()
    dist.all_reduce(rt, op=dist.ReduceOp.SUM)
    rt /= args.world_size
    return rt


def is_main_process():
    if not dist.is_available() or not dist.is_initialized():
        return True
    return dist.get_rank() == 0


def main():
    global best_prec1
    torch.manual_seed(5)
    args.distributed = args.world_size > 1
    if args.distributed:
        torch.cuda.set_device(args.local_rank)
        dist.init_process_group(backend=args.dist_backend, init_method='env://')
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    if args.gpu is not None:
        model = model.cuda(args.gpu)
    elif args.distributed:
        model.cuda()
        model = nn.parallel.DistributedDataParallel(model, device_ids=[args.local_rank])
    else:
        model = torch.nn.DataParallel(model).cuda()
    criterion = nn.CrossEntropyLoss().cuda(args.gpu)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    cudnn.benchmark = True
    gen = torch.Generator().manual_seed(1)
    x = torch.randn(64, 3, 5, 5, generator=gen)
    data = torch.utils.data.TensorDataset(x, x.mean((2, 3)).argmax(1))
    train_set, val_set = torch.utils.data.Subset(data, range(46)), torch.utils.data.Subset(data, range(46, 64))
    if args.distributed:
        train_sampler = torch.utils.data.distributed.DistributedSampler(train_set)
    else:
        train_sampler = None
    train_loader = torch.utils.data.DataLoader(
        train_set, batch_size=args.batch_size, shuffle=(train_sampler is None), num_workers=0, pin_memory=True, sampler=train_sampler)
    val_loader = torch.utils.data.DataLoader(val_set, batch_size=args.batch_size, shuffle=False)
    for epoch in range(args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        for group in optimizer.param_groups:
            group['lr'] = args.lr * (0.1 ** epoch)
        train(train_loader, model, criterion, optimizer, epoch)
        prec1 = validate(val_loader, model, criterion)
        is_best = prec1 > best_prec1
        best_prec1 = max(prec1, best_prec1)
        if not args.distributed or dist.get_rank() == 0:
            torch.save({'epoch': epoch + 1, 'arch': args.arch, 'state_dict': model.state_dict(), 'best_prec1': best_prec1}, 'checkpoint.pth.tar')
            if is_best:
                shutil.copyfile('checkpoint.pth.tar', 'model_best.pth.tar')


class AverageMeter(object):
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val, self.sum, self.count = val, self.sum + val * n, self.count + n
        self.avg = self.sum / self.count


def train(train_loader, model, criterion, optimizer, epoch):
    losses, batch_time, end = AverageMeter(), AverageMeter(), time.time()
    model.train()
    for i, (input, target) in enumerate(train_loader):
        input, target = input.cuda(args.gpu, non_blocking=True), target.cuda(args.gpu, non_blocking=True)
        output = model(input)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        reduced = reduce_tensor(loss.data) if args.distributed else loss.data
        losses.update(reduced.item(), input.size(0))
        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0 and is_main_process():
            print('Epoch: [{0}][{1}/{2}]\tTime {batch_time.val:.3f}s\tLoss {loss.val:.4f} ({loss.avg:.4f})'.format(
                epoch, i, len(train_loader), batch_time=batch_time, loss=losses))


def validate(val_loader, model, criterion):
    losses, correct = AverageMeter(), 0
    model.eval()
    with torch.no_grad():
        for input, target in val_loader:
            target = target.cuda(args.gpu, non_blocking=True)
            output = model(input.cuda(args.gpu, non_blocking=True))
            losses.update(criterion(output, target).item(), input.size(0))
            correct += output.argmax(1).eq(target).sum()
    if args.distributed:
        dist.all_reduce(correct)
    print(' * Prec@1 {:.3f} loss {:.4f}'.format(100. * correct.item() / losses.count, losses.avg))
    return 100. * correct.item() / losses.count


if __name__ == '__main__':
    main()
