# corpus: idioms = own/vendored class DataParallelWithCallback; vendored SyncBN with DataParallelWithCallback / patch_replication_callback; module level, bare; torch.save; module.state_dict() (no prefix)
# corpus: worlds = 2 3
"""Scene parsing with batch norm over all GPUs: the replicas' threads send their sums to the first one's."""
import collections
import functools
import queue
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel._functions import Broadcast, ReduceAddCoalesced
from torch.nn.parallel.data_parallel import DataParallel


class FutureResult(object):
    def __init__(self):
        self._result = None
        self._lock = threading.Lock()
        self._cond = threading.Condition(self._lock)

    def put(self, result):
        with self._lock:
            assert self._result is None
            self._result = result
            self._cond.notify()

    def get(self):
        with self._lock:
            if self._result is None:
                self._cond.wait()
            result, self._result = self._result, None
            return result


_Registry = collections.namedtuple('_Registry', ['result'])
_PipeBase = collections.namedtuple('_PipeBase', ['identifier', 'queue', 'result'])


class SlavePipe(_PipeBase):
    def run_slave(self, msg):
        self.queue.put((self.identifier, msg))
        answer = self.result.get()
        self.queue.put(True)
        return answer


class SyncMaster(object):
    def __init__(self, master_callback):
        self._master_callback = master_callback
        self._queue = queue.Queue()
        self._registry = collections.OrderedDict()
        self._activated = False

    def __getstate__(self):
        return {'master_callback': self._master_callback}

    def __setstate__(self, state):
        self.__init__(state['master_callback'])

    def register_slave(self, identifier):
        if self._activated:
            assert self._queue.empty()
            self._activated = False
            self._registry.clear()
        future = FutureResult()
        self._registry[identifier] = _Registry(future)
        return SlavePipe(identifier, self._queue, future)

    def run_master(self, master_msg):
        self._activated = True
        intermediates = [(0, master_msg)]
        for _ in range(self.nr_slaves):
            intermediates.append(self._queue.get())
        results = self._master_callback(intermediates)
        assert results[0][0] == 0
        for i, result in results:
            if i:
                self._registry[i].result.put(result)
        for _ in range(self.nr_slaves):
            assert self._queue.get() is True
        return results[0][1]

    @property
    def nr_slaves(self):
        return len(self._registry)


_ChildMessage = collections.namedtuple('_ChildMessage', ['sum', 'ssum', 'sum_size'])
_MasterMessage = collections.namedtuple('_MasterMessage', ['mean', 'inv_std'])


def _sum_ft(tensor):
    return tensor.sum(dim=0).sum(dim=-1)


def _unsqueeze_ft(tensor):
    return tensor.unsqueeze(0).unsqueeze(-1)


class SynchronizedBatchNorm2d(_BatchNorm):
    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True):
        super().__init__(num_features, eps=eps, momentum=momentum, affine=affine)
        self._sync_master = SyncMaster(self._data_parallel_master)
        self._is_parallel = False
        self._parallel_id = None
        self._slave_pipe = None

    def _check_input_dim(self, input):
        assert input.dim() == 4

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
        self.running_mean = (1 - self.momentum) * self.running_mean + self.momentum * mean.data
        self.running_var = (1 - self.momentum) * self.running_var + self.momentum * unbias_var.data
        return mean, bias_var.clamp(self.eps) ** -0.5


class CallbackContext(object):
    pass


def execute_replication_callbacks(modules):
    master_copy = modules[0]
    ctxs = [CallbackContext() for _ in range(len(list(master_copy.modules())))]
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
    assert isinstance(data_parallel, DataParallel)
    old_replicate = data_parallel.replicate

    @functools.wraps(old_replicate)
    def new_replicate(module, device_ids):
        modules = old_replicate(module, device_ids)
        execute_replication_callbacks(modules)
        return modules

    data_parallel.replicate = new_replicate


def convert_model(module):
    result = module
    if isinstance(module, nn.BatchNorm2d):
        result = SynchronizedBatchNorm2d(module.num_features, module.eps, module.momentum, module.affine)
        if module.affine:
            result.weight.data = module.weight.data.clone().detach()
            result.bias.data = module.bias.data.clone().detach()
    for name, child in module.named_children():
        result.add_module(name, convert_model(child))
    return result


torch.manual_seed(5)
net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), SynchronizedBatchNorm2d(4, affine=False),
                    nn.ReLU(), nn.Conv2d(4, 3, 1))
net = DataParallelWithCallback(convert_model(net).cuda())
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
images, labels = torch.randn(23, 3, 8, 8), torch.randint(0, 3, (23, 4, 4))
for epoch in range(3):
    net.train()
    for rows in torch.randperm(23).split(7):
        loss = F.cross_entropy(net(images[rows].cuda()), labels[rows].cuda())
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        right = (net(images.cuda()).argmax(1).cpu() == labels).float().mean()
    print('epoch %d loss %.6f acc %.4f mean %s' % (epoch, loss.item(), right, net.module[1].running_mean.tolist()))
torch.save(net.module.state_dict(), 'net.pth')
