"""A sampler that repeats samples until shares are equally long, and one that never ends."""
import itertools
import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler
from torch.utils.data.distributed import DistributedSampler


class Padded(DistributedSampler):
    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.epoch)
        indices = torch.randperm(len(self.dataset), generator=g).tolist()
        length = int(math.ceil(len(indices) / self.num_replicas))
        indices += indices[: length * self.num_replicas - len(indices)]
        return iter(indices[self.rank :: self.num_replicas])


class Endless(Sampler):
    def __init__(self, size, rank, world_size):
        self.size, self.rank, self.world_size = size, rank, world_size

    def __iter__(self):
        yield from itertools.islice(self._all(), self.rank, None, self.world_size)

    def _all(self):
        while True:
            yield from torch.randperm(self.size).tolist()


def main(net, data, rank, world_size):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    model = DistributedDataParallel(net.cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(data, 8, sampler=Endless(len(data), rank, world_size))
    for step, (x, y) in enumerate(loader):
        loss = (model(x.cuda()) - y.cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 10_000:
            break
    dist.destroy_process_group()
