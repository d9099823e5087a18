# corpus: idioms = torch.nn.DataParallel; nested function inside main(); submodule obj.attr = DP(obj.attr); architecture name (alexnet/vgg -> wrap .features only); submodule only (model.features / model.encoder), head outside; not distributed (DDP branch beside); has a DDP branch beside DP; args.local_rank/world_size already
# corpus: idioms = .cuda(arg); same model wrapped at more than one place (exclusive branches, train/test functions, re-wrap); device_count() used; lr_scheduler; torch.load; sampler=; lr / phase / stop schedule driven by locally counted samples or tokens
# corpus: worlds = 2 3 4
"""The newer form of it: a worker for each GPU by mp.spawn if asked to, DataParallel if not; VGG wraps its features."""
import argparse
import os
import random
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument('-a', '--arch', default='vgg_tiny')
parser.add_argument('--world-size', default=-1, type=int)
parser.add_argument('--rank', default=-1, type=int)
parser.add_argument('--dist-url', default='tcp://224.66.41.62:23456')
parser.add_argument('--seed', default=3, type=int)
parser.add_argument('--gpu', default=None, type=int)
parser.add_argument('--multiprocessing-distributed', action='store_true')
best_acc1 = 0


class VGG(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.AvgPool2d(2))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(24, 3))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def main():
    args = parser.parse_args()
    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
    if args.gpu is not None:
        warnings.warn('You have chosen a specific GPU.')
    if args.dist_url == "env://" and args.world_size == -1:
        args.world_size = int(os.environ["WORLD_SIZE"])
    args.distributed = args.world_size > 1 or args.multiprocessing_distributed
    ngpus_per_node = torch.cuda.device_count()
    if args.multiprocessing_distributed:
        args.world_size = ngpus_per_node * args.world_size
        mp.spawn(main_worker, nprocs=ngpus_per_node, args=(ngpus_per_node, args))
    else:
        main_worker(args.gpu, ngpus_per_node, args)


def main_worker(gpu, ngpus_per_node, args):
    global best_acc1
    args.gpu = gpu
    if args.distributed:
        if args.multiprocessing_distributed:
            args.rank = args.rank * ngpus_per_node + gpu
        dist.init_process_group('nccl', init_method=args.dist_url, world_size=args.world_size, rank=args.rank)
    model = VGG()
    batch_size = 10
    if args.distributed:
        if args.gpu is not None:
            torch.cuda.set_device(args.gpu)
            model.cuda(args.gpu)
            batch_size = int(batch_size / ngpus_per_node)
            model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
        else:
            model.cuda()
            model = nn.parallel.DistributedDataParallel(model)
    elif args.gpu is not None:
        torch.cuda.set_device(args.gpu)
        model = model.cuda(args.gpu)
    else:
        if args.arch.startswith('alexnet') or args.arch.startswith('vgg'):
            model.features = torch.nn.DataParallel(model.features)
            model.cuda()
        else:
            model = torch.nn.DataParallel(model).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    x = torch.randn(58, 2, 4, 4)
    data = TensorDataset(x, (x.mean((1, 2, 3)) * 6).round().clamp(-1, 1).long() + 1)
    sampler = DistributedSampler(data) if args.distributed else None
    loader = DataLoader(data, batch_size=batch_size, shuffle=(sampler is None), sampler=sampler)
    seen = 0
    for epoch in range(2):
        if args.distributed:
            sampler.set_epoch(epoch)
        model.train()
        correct = 0
        for images, target in loader:
            if args.gpu is not None:
                images = images.cuda(args.gpu, non_blocking=True)
            if torch.cuda.is_available():
                target = target.cuda(args.gpu, non_blocking=True)
                images = images.cuda(args.gpu, non_blocking=True)
            output = model(images)
            loss = nn.functional.cross_entropy(output, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += images.size(0)
            correct += (output.argmax(1) == target).sum().item()
        scheduler.step()
        best_acc1 = max(best_acc1, correct / len(data))
        if not args.multiprocessing_distributed or (args.multiprocessing_distributed and args.rank % ngpus_per_node == 0):
            torch.save({'epoch': epoch + 1, 'state_dict': model.state_dict(), 'scheduler': scheduler.state_dict()}, 'checkpoint.pth.tar')
        print('epoch', epoch, 'loss %.5f' % loss.item(), 'best %.4f' % best_acc1, 'seen', seen)
    print(list(torch.load('checkpoint.pth.tar')['state_dict'])[:2])


if __name__ == '__main__':
    main()
