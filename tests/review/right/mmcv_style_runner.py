"""A runner with helpers of the OpenMMLab kind, written out: master_only, get_dist_info, a mean over ranks."""
import functools
import os.path as osp
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def get_dist_info():
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def master_only(func):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        rank, _ = get_dist_info()
        if rank == 0:
            return func(*args, **kwargs)

    return wrapper


def reduce_mean(tensor):
    if not (dist.is_available() and dist.is_initialized()):
        return tensor
    tensor = tensor.clone()
    dist.all_reduce(tensor.div_(dist.get_world_size()), op=dist.ReduceOp.SUM)
    return tensor


class Runner:
    def __init__(self, model, work_dir, max_epochs):
        self.rank, self.world_size = get_dist_info()
        self.model = DistributedDataParallel(
            model.cuda(), device_ids=[torch.cuda.current_device()], broadcast_buffers=False,
            find_unused_parameters=model.cfg.get("find_unused_parameters", False))
        self.work_dir, self._max_epochs, self._epoch = work_dir, max_epochs, 0
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    @master_only
    def save_checkpoint(self):
        torch.save({"state_dict": self.model.module.state_dict()}, osp.join(self.work_dir, f"{self._epoch}.pth"))

    @master_only
    def log(self, **values):
        print(time.strftime("%H:%M:%S"), values)

    def train(self, data_loader):
        self.model.train()
        for i, batch in enumerate(data_loader):
            losses = self.model(**batch)
            loss = sum(losses.values())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.log(epoch=self._epoch, iter=i, loss=reduce_mean(loss.detach()).item())
        self._epoch += 1

    def run(self, data_loader):
        while self._epoch < self._max_epochs:
            if hasattr(data_loader.sampler, "set_epoch"):
                data_loader.sampler.set_epoch(self._epoch)
            self.train(data_loader)
            self.save_checkpoint()
