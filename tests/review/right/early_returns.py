"""Functions that return on other ranks; a decorator; `if not initialized or rank 0`; downloads behind a barrier."""
import functools
import os
import urllib.request

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def first():
    return not dist.is_available() or not dist.is_initialized() or dist.get_rank() == 0


def rank_zero_only(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        if first():
            return function(*args, **kwargs)
        return None

    return inner


@rank_zero_only
def save(state, path):
    torch.save(state, path)


def log(*words):
    if not first():
        return
    print(*words)


def download(url, path):
    if first() and not os.path.exists(path):
        urllib.request.urlretrieve(url, path)
    if dist.is_initialized():
        dist.barrier()
    return torch.load(path, map_location="cpu", weights_only=True)


class Summary:
    def __init__(self):
        self.enabled = not dist.is_initialized() or dist.get_rank() == 0

    def line(self, text):
        if self.enabled:
            print(text)


def main(net, batches, url):
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("nccl")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    net.load_state_dict(download(url, "weights.pt"))
    net.cuda()
    model = DDP(net, device_ids=[torch.cuda.current_device()]) if distributed else net
    bare = model.module if distributed else model
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    summary = Summary()
    for step, batch in enumerate(batches):
        loss = model(batch.cuda()).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log("step", step, loss.item())
        if step % 100 == 0:
            summary.line(f"{step}")
            save(bare.state_dict(), "last.pt")
    if distributed:
        dist.destroy_process_group()
