"""For torchrun with restarts: snapshots, signals, @record, a group that is taken down in any case."""
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler

stop = False


def ask_to_stop(number, frame):
    global stop
    stop = True


def all_agree(flag, device):
    votes = torch.tensor(float(flag), device=device)
    dist.all_reduce(votes, op=dist.ReduceOp.MAX)
    return votes.item() > 0


class State:
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.epoch = model, optimizer, 0

    def save(self, path):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": self.epoch}
        torch.save(state, path + ".new")
        os.rename(path + ".new", path)

    def load(self, path, device):
        state = torch.load(path, map_location=device)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch = state["epoch"]


@record
def main(net, data, path="snapshot.pt"):
    signal.signal(signal.SIGTERM, ask_to_stop)
    dist.init_process_group("nccl")
    try:
        local_rank = int(os.environ["LOCAL_RANK"])
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        model = DistributedDataParallel(net.to(device), device_ids=[local_rank])
        state = State(model, torch.optim.SGD(model.parameters(), 0.1))
        if os.path.exists(path):
            state.load(path, device)
        sampler = DistributedSampler(data) if dist.get_world_size() > 1 else RandomSampler(data)
        loader = DataLoader(data, 32, sampler=sampler, drop_last=True)
        while state.epoch < 90:
            if isinstance(sampler, DistributedSampler):
                sampler.set_epoch(state.epoch)
            for x, y in loader:
                state.optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
                state.optimizer.step()
                if all_agree(stop, device):
                    sys.exit(0)
            state.epoch += 1
            if int(os.environ["RANK"]) == 0:
                state.save(path)
    finally:
        dist.destroy_process_group()
