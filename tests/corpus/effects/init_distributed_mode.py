# corpus: idioms = torch.nn.DataParallel; has a DDP branch beside DP; args.local_rank/world_size already; device_count() > 1; new name, raw model kept under another name; function main/train/run; argparse; sampler=; torch.save; non_blocking; lr_scheduler
# corpus: worlds = 2 3
"""The set-up that many later projects share: init_distributed_mode asks the environment, and DataParallel is what remains.

Synchronised BatchNorm is asked for whatever the mode is, meters and files ask whether there are other ranks.
"""
import argparse
import builtins
import os
from collections import defaultdict, deque

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class SmoothedValue(object):
    def __init__(self, window_size=20):
        self.deque, self.total, self.count = deque(maxlen=window_size), 0.0, 0

    def update(self, value, n=1):
        self.deque.append(value)
        self.count += n
        self.total += value * n

    def synchronize_between_processes(self):
        if not is_dist_avail_and_initialized():
            return
        t = torch.tensor([self.count, self.total], dtype=torch.float64, device='cuda')
        dist.barrier()
        dist.all_reduce(t)
        self.count, self.total = int(t[0]), t[1].item()

    @property
    def global_avg(self):
        return self.total / self.count


def is_dist_avail_and_initialized():
    if not dist.is_available():
        return False
    if not dist.is_initialized():
        return False
    return True


def get_world_size():
    return dist.get_world_size() if is_dist_avail_and_initialized() else 1


def get_rank():
    if not is_dist_avail_and_initialized():
        return 0
    return dist.get_rank()


def save_on_master(*args, **kwargs):
    if get_rank() == 0:
        torch.save(*args, **kwargs)


def setup_for_distributed(is_master):
    builtin_print = builtins.print

    def print(*args, **kwargs):
        force = kwargs.pop('force', False)
        if is_master or force:
            builtin_print(*args, **kwargs)

    builtins.print = print


def init_distributed_mode(args):
    if 'RANK' in os.environ and 'WORLD_SIZE' in os.environ:
        args.rank = int(os.environ['RANK'])
        args.world_size = int(os.environ['WORLD_SIZE'])
        args.gpu = int(os.environ['LOCAL_RANK'])
    elif 'SLURM_PROCID' in os.environ and args.slurm:
        args.rank = int(os.environ['SLURM_PROCID'])
        args.gpu = args.rank % torch.cuda.device_count()
    else:
        print('Not using distributed mode')
        args.distributed = False
        return
    args.distributed = True
    torch.cuda.set_device(args.gpu)
    dist.init_process_group(backend='nccl', init_method=args.dist_url, world_size=args.world_size, rank=args.rank)
    dist.barrier()
    setup_for_distributed(args.rank == 0)


def reduce_dict(losses):
    world_size = get_world_size()
    if world_size < 2:
        return losses
    names = sorted(losses)
    values = torch.stack([losses[k] for k in names])
    dist.all_reduce(values)
    return dict(zip(names, values / world_size))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.cls, self.box = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x):
        x = self.backbone(x).flatten(1)
        return {'logits': self.cls(x), 'boxes': self.box(x).sigmoid()}


def main(args):
    init_distributed_mode(args)
    torch.manual_seed(args.seed + get_rank())
    model = Net().to(args.device)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model_without_ddp = model
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
        model_without_ddp = model.module
    elif torch.cuda.device_count() > 1:
        model = torch.nn.DataParallel(model)
        model_without_ddp = model.module
    optimizer = torch.optim.AdamW(model_without_ddp.parameters(), lr=args.lr * get_world_size())
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    x = torch.randn(42, 3, 6, 6)
    data = TensorDataset(x, torch.randint(4, (42,)), torch.rand(42, 4))
    sampler = torch.utils.data.DistributedSampler(data) if args.distributed else torch.utils.data.RandomSampler(data)
    loader = DataLoader(data, batch_sampler=torch.utils.data.BatchSampler(sampler, args.batch_size, drop_last=False))
    for epoch in range(args.epochs):
        if args.distributed:
            sampler.set_epoch(epoch)
        meters = defaultdict(SmoothedValue)
        model.train()
        for images, labels, boxes in loader:
            images, labels, boxes = (t.to(args.device, non_blocking=True) for t in (images, labels, boxes))
            outputs = model(images)
            loss_dict = {'loss_ce': nn.functional.cross_entropy(outputs['logits'], labels),
                         'loss_bbox': nn.functional.l1_loss(outputs['boxes'], boxes, reduction='none').sum() / len(boxes)}
            losses = sum(loss_dict.values())
            for k, v in reduce_dict({k: v.detach() for k, v in loss_dict.items()}).items():
                meters[k].update(v.item(), len(images))
            optimizer.zero_grad()
            losses.backward()
            optimizer.step()
        lr_scheduler.step()
        for meter in meters.values():
            meter.synchronize_between_processes()
        print('Averaged stats:', '  '.join('%s: %.4f' % (k, m.global_avg) for k, m in meters.items()))
        save_on_master({'model': model_without_ddp.state_dict(), 'optimizer': optimizer.state_dict(), 'epoch': epoch}, 'checkpoint.pth')


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--lr', default=1e-2, type=float)
    parser.add_argument('--batch_size', default=8, type=int)
    parser.add_argument('--epochs', default=2, type=int)
    parser.add_argument('--seed', default=42, type=int)
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--slurm', action='store_true')
    parser.add_argument('--dist_url', default='env://')
    main(parser.parse_args())
