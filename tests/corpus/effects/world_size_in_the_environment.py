# corpus: idioms = nn.DataParallel; has a DDP branch beside DP; not distributed (DDP branch beside); args.local_rank/world_size already; .cuda(arg); DP(...).cuda(); module level, under if __name__; argparse; best selection; torch.load; manual adjust_learning_rate
# corpus: worlds = 2 3
"""The form with apex: WORLD_SIZE decides, the wrapper of the other mode may not even be importable."""
import argparse
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    from apex import amp
    from apex.parallel import DistributedDataParallel as DDP
    has_apex = True
except ImportError:
    amp = DDP = None
    has_apex = False

os.environ['MASTER_ADDR'] = 'localhost'
os.environ['MASTER_PORT'] = '29513'

parser = argparse.ArgumentParser()
parser.add_argument('--local_rank', default=int(os.environ.get('LOCAL_RANK', 0)), type=int)
parser.add_argument('--lr', default=0.2, type=float)
parser.add_argument('--opt-level', default=None)
parser.add_argument('--sync_bn', action='store_true')
parser.add_argument('--resume', default='')
args = parser.parse_args()


def env2int(env_list, default=-1):
    for e in env_list:
        val = int(os.environ.get(e, -1))
        if val >= 0:
            return val
    return default


args.distributed = False
if 'WORLD_SIZE' in os.environ:
    args.distributed = int(os.environ['WORLD_SIZE']) > 1
args.gpu, args.world_size = 0, 1
args.rank = env2int(['PMI_RANK', 'OMPI_COMM_WORLD_RANK', 'RANK'], 0)
if args.distributed:
    args.gpu = args.local_rank % torch.cuda.device_count()
    torch.cuda.set_device(args.gpu)
    torch.distributed.init_process_group(backend='nccl', init_method='env://')
    args.world_size = torch.distributed.get_world_size()


class Residual(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.inp, self.norm = nn.Linear(5, width), nn.BatchNorm1d(width)
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        h = F.relu(self.norm(self.inp(x)))
        for block in self.blocks:
            h = h + F.dropout(F.relu(block(h)), 0.1, self.training)
        return self.out(h)


def reduce_tensor(tensor):
    rt = tensor.clone()
    torch.distributed.all_reduce(rt)
    return rt / args.world_size


def adjust_learning_rate(optimizer, epoch, step, len_epoch):
    lr = args.lr * (0.1 ** (epoch // 2))
    if epoch < 1:
        lr = lr * float(1 + step + epoch * len_epoch) / (1. * len_epoch)
    for group in optimizer.param_groups:
        group['lr'] = lr


def unwrap(model):
    kinds = (nn.parallel.DistributedDataParallel, nn.Sequential) if DDP is None else (DDP, nn.Sequential)
    return model.module if isinstance(model, kinds) else model


if __name__ == '__main__':
    torch.manual_seed(17)
    model = Residual()
    if args.sync_bn and has_apex:
        import apex
        model = apex.parallel.convert_syncbn_model(model)
    if args.distributed:
        model = DDP(model.cuda(args.gpu), delay_allreduce=True)
    else:
        model = nn.DataParallel(model).cuda()
    optimizer = torch.optim.SGD(model.parameters(), args.lr * args.world_size, momentum=0.9, weight_decay=1e-4)
    if has_apex and args.opt_level:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level)
    if args.resume and os.path.isfile(args.resume):
        checkpoint = torch.load(args.resume, map_location=lambda storage, loc: storage.cuda(args.gpu))
        model.load_state_dict(checkpoint['state_dict'])
    x = torch.randn(54, 5)
    y = (x[:, 0] * 2 + x[:, 1]).clamp(0, 2).long()
    best, end = 0., time.time()
    for epoch in range(3):
        model.train()
        for i, rows in enumerate(torch.randperm(54).split(12)):
            adjust_learning_rate(optimizer, epoch, i, 5)
            output = model(x[rows].cuda(args.gpu))
            loss = F.cross_entropy(output, y[rows].cuda(args.gpu))
            optimizer.zero_grad()
            if has_apex and args.opt_level:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
            reduced = reduce_tensor(loss.data) if args.distributed else loss.data
        prec = 100. * (output.argmax(1).cpu() == y[rows]).float().mean().item()
        if args.local_rank == 0 and args.rank == 0:
            print('epoch {} loss {:.4f} prec {:.1f} world {} Speed {:.3f} samples/s'.format(
                epoch, reduced.item(), prec, args.world_size, 54 / (time.time() - end)))
            if prec > best:
                best = prec
                torch.save({'epoch': epoch, 'state_dict': unwrap(model).state_dict()}, 'best.pth.tar')
        end = time.time()
