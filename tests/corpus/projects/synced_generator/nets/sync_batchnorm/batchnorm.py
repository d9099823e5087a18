"""Batch norm whose statistics are those of the rows on all devices."""
import collections

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.modules.batchnorm import _BatchNorm

try:
    from torch.nn.parallel._functions import ReduceAddCoalesced, Broadcast
except ImportError:
    ReduceAddCoalesced = Broadcast = None

from .comm import SyncMaster
from .replicate import DataParallelWithCallback

EPS_MODE = 'clamp'


def set_eps_mode(mode):
    global EPS_MODE
    assert mode in ('clamp', 'plus')
    EPS_MODE = mode


_ChildMessage = collections.namedtuple('_ChildMessage', ['sum', 'ssum', 'sum_size'])
_MasterMessage = collections.namedtuple('_MasterMessage', ['mean', 'inv_std'])


def _sum_ft(tensor):
    return tensor.sum(dim=0).sum(dim=-1)


def _unsqueeze_ft(tensor):
    return tensor.unsqueeze(0).unsqueeze(-1)


class _SynchronizedBatchNorm(_BatchNorm):
    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True):
        super().__init__(num_features, eps=eps, momentum=momentum, affine=affine)
        self._sync_master = SyncMaster(self._data_parallel_master)
        self._is_parallel = False
        self._parallel_id = None
        self._slave_pipe = None

    def forward(self, input):
        if not (self._is_parallel and self.training):
            return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias,
                                self.training, self.momentum, self.eps)
        shape = input.size()
        input = input.view(input.size(0), self.num_features, -1)
        size = input.size(0) * input.size(2)
        message = _ChildMessage(_sum_ft(input), _sum_ft(input ** 2), size)
        if self._parallel_id == 0:
            mean, inv_std = self._sync_master.run_master(message)
        else:
            mean, inv_std = self._slave_pipe.run_slave(message)
        if self.affine:
            output = (input - _unsqueeze_ft(mean)) * _unsqueeze_ft(inv_std * self.weight) + _unsqueeze_ft(self.bias)
        else:
            output = (input - _unsqueeze_ft(mean)) * _unsqueeze_ft(inv_std)
        return output.view(shape)

    def __data_parallel_replicate__(self, ctx, copy_id):
        self._is_parallel = True
        self._parallel_id = copy_id
        if self._parallel_id == 0:
            ctx.sync_master = self._sync_master
        else:
            self._slave_pipe = ctx.sync_master.register_slave(copy_id)

    def _data_parallel_master(self, intermediates):
        intermediates = sorted(intermediates, key=lambda i: i[1].sum.get_device())
        to_reduce = [j for i in intermediates for j in i[1][:2]]
        target_gpus = [i[1].sum.get_device() for i in intermediates]
        size = sum([i[1].sum_size for i in intermediates])
        sum_, ssum = ReduceAddCoalesced.apply(target_gpus[0], 2, *to_reduce)
        mean, inv_std = self._compute_mean_std(sum_, ssum, size)
        broadcasted = Broadcast.apply(target_gpus, mean, inv_std)
        return [(rec[0], _MasterMessage(*broadcasted[i * 2:i * 2 + 2])) for i, rec in enumerate(intermediates)]

    def _compute_mean_std(self, sum_, ssum, size):
        assert size > 1
        mean = sum_ / size
        sumvar = ssum - sum_ * mean
        unbias_var = sumvar / (size - 1)
        bias_var = sumvar / size
        with torch.no_grad():
            self.running_mean = (1 - self.momentum) * self.running_mean + self.momentum * mean.data
            self.running_var = (1 - self.momentum) * self.running_var + self.momentum * unbias_var.data
        if EPS_MODE == 'clamp':
            return mean, bias_var.clamp(self.eps) ** -0.5
        return mean, (bias_var + self.eps) ** -0.5


class SynchronizedBatchNorm1d(_SynchronizedBatchNorm):
    def _check_input_dim(self, input):
        assert input.dim() in (2, 3)


class SynchronizedBatchNorm2d(_SynchronizedBatchNorm):
    def _check_input_dim(self, input):
        assert input.dim() == 4


def convert_model(module):
    if isinstance(module, torch.nn.DataParallel):
        return DataParallelWithCallback(convert_model(module.module), device_ids=module.device_ids)
    result = module
    if isinstance(module, nn.BatchNorm2d):
        result = SynchronizedBatchNorm2d(module.num_features, module.eps, module.momentum, module.affine)
        if module.affine:
            result.weight.data = module.weight.data.clone().detach()
            result.bias.data = module.bias.data.clone().detach()
    for name, child in module.named_children():
        result.add_module(name, convert_model(child))
    return result
