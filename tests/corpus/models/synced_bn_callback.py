# corpus: idioms = own/vendored class DataParallelWithCallback; vendored SyncBN with DataParallelWithCallback / patch_replication_callback; several models wrapped in one script; own/vendored class; computed inside the wrapped forward, gathered, then .mean()
# corpus: answer = 1 DDP204:30
"""Semantic image synthesis with the vendored SyncBN: the replicas' threads meet inside of the batch norm."""
import functools
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel.data_parallel import DataParallel


class SynchronizedBatchNorm2d(nn.BatchNorm2d):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._is_parallel = False
        self._barrier = None
        self._sums = {}

    def forward(self, input):
        if not (self._is_parallel and self.training):
            return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, self.training, 0.1, self.eps)
        self._sums[self._parallel_id] = (input.sum((0, 2, 3)), input.pow(2).sum((0, 2, 3)), input.numel() / input.size(1))
        self._barrier.wait()
        n = sum(s[2] for s in self._sums.values())
        mean = sum(s[0].to(input.device) for s in self._sums.values()) / n
        var = sum(s[1].to(input.device) for s in self._sums.values()) / n - mean ** 2
        return F.batch_norm(input, mean.detach(), var.detach(), self.weight, self.bias, False, 0, self.eps)

    def __data_parallel_replicate__(self, ctx, copy_id):
        self._is_parallel = True
        self._parallel_id = copy_id
        self._barrier = ctx.barrier


class CallbackContext(object):
    pass


def execute_replication_callbacks(modules):
    nr_modules = len(list(modules[0].modules()))
    ctxs = [CallbackContext() for _ in range(nr_modules)]
    for ctx in ctxs:
        ctx.barrier = threading.Barrier(len(modules))
    for i, module in enumerate(modules):
        for j, m in enumerate(module.modules()):
            if hasattr(m, '__data_parallel_replicate__'):
                m.__data_parallel_replicate__(ctxs[j], i)


class DataParallelWithCallback(DataParallel):
    def replicate(self, module, device_ids):
        modules = super(DataParallelWithCallback, self).replicate(module, device_ids)
        execute_replication_callbacks(modules)
        return modules


def patch_replication_callback(data_parallel):
    old_replicate = data_parallel.replicate

    @functools.wraps(old_replicate)
    def new_replicate(module, device_ids):
        modules = old_replicate(module, device_ids)
        execute_replication_callbacks(modules)
        return modules
    data_parallel.replicate = new_replicate


net = DataParallelWithCallback(nn.Sequential(nn.Conv2d(3, 4, 3), SynchronizedBatchNorm2d(4), nn.Conv2d(4, 2, 1))).cuda()
head = nn.DataParallel(nn.Sequential(SynchronizedBatchNorm2d(2), nn.ReLU())).cuda()
patch_replication_callback(head)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    x = torch.randn(8, 3, 6, 6).cuda()
    loss = head(net(x)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
