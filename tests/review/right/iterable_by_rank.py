"""An IterableDataset that takes each rank's lines, trained under join() since shares differ."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __init__(self, path, rank, world_size):
        self.path, self.rank, self.world_size = path, rank, world_size

    def __iter__(self):
        info = get_worker_info()
        workers, worker = (info.num_workers, info.id) if info else (1, 0)
        place, step = self.rank * workers + worker, self.world_size * workers
        with open(self.path) as file:
            for number, line in enumerate(file):
                if number % step == place:
                    yield torch.tensor(list(map(float, line.split())))


def main(net):
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Lines(os.environ["DATA"], rank, world_size), batch_size=8, num_workers=2)
    files = sorted(os.listdir("more"))[rank::world_size]
    with model.join():
        for x in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        for name in files:
            model(torch.load(os.path.join("more", name))).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()
