# corpus: idioms = nn.DataParallel; has a DDP branch beside DP; not distributed (DDP branch beside); args.local_rank/world_size already; class method (__init__); self.attr = DP(...); argparse; sampler=
# corpus: worlds = 2
"""`--launcher none`: a toolbox in which the launcher chooses the mode, and every part asks for its rank and world."""
import argparse
import functools
import os
import subprocess

import torch
import torch.multiprocessing as mp
import torch.nn as nn
from torch import distributed as dist
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler


def init_dist(launcher, backend='nccl', **kwargs):
    if mp.get_start_method(allow_none=True) is None:
        mp.set_start_method('spawn')
    if launcher == 'pytorch':
        _init_dist_pytorch(backend, **kwargs)
    elif launcher == 'slurm':
        _init_dist_slurm(backend, **kwargs)
    else:
        raise ValueError('Invalid launcher type: {}'.format(launcher))


def _init_dist_pytorch(backend, **kwargs):
    rank = int(os.environ['RANK'])
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(backend=backend, **kwargs)


def _init_dist_slurm(backend, port=None):
    proc_id = int(os.environ['SLURM_PROCID'])
    ntasks = int(os.environ['SLURM_NTASKS'])
    torch.cuda.set_device(proc_id % torch.cuda.device_count())
    addr = subprocess.getoutput('scontrol show hostname {} | head -n1'.format(os.environ['SLURM_NODELIST']))
    os.environ['MASTER_PORT'] = str(port or 29500)
    os.environ['MASTER_ADDR'] = addr
    os.environ['WORLD_SIZE'] = str(ntasks)
    os.environ['LOCAL_RANK'] = str(proc_id % torch.cuda.device_count())
    os.environ['RANK'] = str(proc_id)
    dist.init_process_group(backend=backend)


def get_dist_info():
    if dist.is_available():
        initialized = dist.is_initialized()
    else:
        initialized = False
    if initialized:
        rank = dist.get_rank()
        world_size = dist.get_world_size()
    else:
        rank = 0
        world_size = 1
    return rank, world_size


def master_only(func):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        rank, _ = get_dist_info()
        if rank == 0:
            return func(*args, **kwargs)
    return wrapper


class EnlargedSampler(Sampler):
    def __init__(self, dataset, num_replicas, rank, ratio=1):
        self.dataset, self.num_replicas, self.rank, self.epoch = dataset, num_replicas, rank, 0
        self.num_samples = len(dataset) * ratio // num_replicas

    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.epoch)
        indices = torch.randperm(self.num_samples * self.num_replicas, generator=g).tolist()
        return iter([v % len(self.dataset) for v in indices][self.rank::self.num_replicas])

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        self.epoch = epoch


class Pairs(Dataset):
    def __init__(self, n=22):
        self.lq = torch.randn(n, 2, 4, 4, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.lq)

    def __getitem__(self, index):
        return {'lq': self.lq[index], 'gt': nn.functional.interpolate(self.lq[index:index + 1], scale_factor=2)[0]}


class Model(object):
    def __init__(self, opt):
        self.opt = opt
        self.device = torch.device('cuda' if opt['num_gpu'] != 0 else 'cpu')
        net = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.LeakyReLU(0.1), nn.Conv2d(8, 8, 3, padding=1), nn.PixelShuffle(2))
        self.net_g = self.model_to_device(net)
        self.optimizer_g = torch.optim.Adam(self.net_g.parameters(), lr=1e-2, betas=(0.9, 0.99))
        self.log_dict = {}

    def model_to_device(self, net):
        net = net.to(self.device)
        if self.opt['dist']:
            net = DistributedDataParallel(net, device_ids=[torch.cuda.current_device()])
        elif self.opt['num_gpu'] > 1:
            net = DataParallel(net)
        return net

    def get_bare_model(self, net):
        if isinstance(net, (DataParallel, DistributedDataParallel)):
            net = net.module
        return net

    def optimize_parameters(self, data):
        self.optimizer_g.zero_grad()
        output = self.net_g(data['lq'].to(self.device))[:, :2]
        loss = nn.functional.l1_loss(output, data['gt'].to(self.device))
        loss.backward()
        self.optimizer_g.step()
        self.log_dict = self.reduce_loss_dict({'l_pix': loss})

    def reduce_loss_dict(self, loss_dict):
        with torch.no_grad():
            if self.opt['dist']:
                losses = torch.stack(list(loss_dict.values()))
                torch.distributed.reduce(losses, dst=0)
                if self.opt['rank'] == 0:
                    losses /= self.opt['world_size']
                loss_dict = dict(zip(loss_dict, losses))
            return {name: value.mean().item() for name, value in loss_dict.items()}

    @master_only
    def save_network(self, path):
        net = self.get_bare_model(self.net_g)
        torch.save({'params': {key.replace('module.', ''): value.cpu() for key, value in net.state_dict().items()}}, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--launcher', choices=['none', 'pytorch', 'slurm'], default='none')
    parser.add_argument('--local_rank', type=int, default=0)
    args = parser.parse_args()
    opt = {'num_gpu': torch.cuda.device_count()}
    if args.launcher == 'none':
        opt['dist'] = False
        print('Disable distributed.', flush=True)
    else:
        opt['dist'] = True
        init_dist(args.launcher)
    opt['rank'], opt['world_size'] = get_dist_info()
    torch.manual_seed(10 + opt['rank'])
    data = Pairs()
    sampler = EnlargedSampler(data, opt['world_size'], opt['rank'], 2)
    loader = DataLoader(data, batch_size=4 if opt['dist'] else 4 * opt['num_gpu'], shuffle=False, sampler=sampler)
    model = Model(opt)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            model.optimize_parameters(batch)
        if opt['rank'] == 0:
            print('epoch', epoch, 'l_pix %.5f' % model.log_dict['l_pix'])
    model.save_network('net_g_latest.pth')


if __name__ == '__main__':
    main()
