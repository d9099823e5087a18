"""Ports that hang or fail, each in another way; the lines that the tests name are marked by what stands in them."""

from __future__ import annotations

START = """\
import os, signal, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        while index == 5:
            time.sleep(0.1)
        return torch.ones(3) * index

class Stuck:
    def __getstate__(self):
        time.sleep(600)

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).cuda()

rank = int(os.environ.get("RANK", 0))
torch.cuda.set_device(rank)
"""
JOIN = 'dist.init_process_group("nccl")\n'
one = "torch.ones(4).cuda()"

HANGS = {
    "saving": f"""\
if rank == 0:
    torch.save(Stuck(), "model.pt")
dist.all_gather([torch.zeros(4).cuda() for _ in range(2)], {one})
""",
    "asynchronous": f"""\
if rank == 0:
    work = dist.all_reduce({one}, async_op=True)
    work.wait()
else:
    time.sleep(600)
""",
    "backward": """\
model = DDP(net()[0], device_ids=[rank])
for _ in range(3 - rank):
    model(torch.ones(4, 3).cuda()).sum().backward()
time.sleep(600)
""",
    "buffers": """\
model = DDP(net(), device_ids=[rank])
if rank == 0:
    time.sleep(600)
model(torch.ones(4, 3).cuda())
""",
    "constructor": """\
if rank == 1:
    time.sleep(600)
model = DDP(net())
""",
    "loader": """\
model = DDP(net())
if rank == 1:
    for rows in DataLoader(Slow(), batch_size=2, num_workers=1):
        pass
model(torch.ones(4, 3).cuda()).sum().backward()
dist.barrier()
""",
    "one rank's barrier": f"""\
for step in range(3):
    dist.all_reduce({one})
if rank == 0:
    dist.barrier()
dist.destroy_process_group()
time.sleep(600)
""",
    "objects": """\
found = [None, None]
if rank == 1:
    dist.all_gather_object(found, {"rank": rank})
while True:
    time.sleep(1)
""",
}
WITHOUT_JOINING = {
    "another world": """\
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29555", rank=rank, world_size=3)
""",
    "never joins": """\
if rank == 1:
    while True:
        time.sleep(1)
dist.init_process_group("nccl")
""",
}
FAILURES = {
    "one fails": f"""\
def check(loss):
    if rank == 1:
        raise ValueError("loss is nan")

dist.all_reduce({one})
check(1.0)
dist.all_reduce({one})
""",
    "both fail": """\
if rank == 0:
    raise KeyError("model")
time.sleep(2)
raise ValueError("late")
""",
    "killed": f"""\
dist.all_reduce({one})
if rank == 1:
    loader = iter(DataLoader(Slow(), batch_size=8, num_workers=1))
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce({one})
""",
    "one ends": f"""\
if rank == 1:
    sys.exit()
dist.all_reduce({one})
""",
    "other shapes": """\
dist.all_reduce(torch.ones(4 + 300000 * rank).cuda())
dist.barrier()
""",
}
EITHER = {  # gloo may fail or wait, as it happens
    "other collectives": f"""\
if rank == 0:
    dist.all_reduce({one})
else:
    dist.broadcast({one}, 0)
dist.barrier()
"""
}
SPAWNED = """\
import time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def main(rank):
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29501", rank=rank, world_size=2)
    if rank == 1:
        time.sleep(600)
    dist.barrier()

if __name__ == "__main__":
    mp.spawn(main, nprocs=2)
"""
CONVERTED = """\
import os, time
import torch
from torch import nn

torch.manual_seed(0)
model = nn.DataParallel(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    optimizer.zero_grad()
    if step == 2 and getattr(torch, "distributed").get_rank() == 1:
        time.sleep(600)
    loss = model(torch.randn(8, 3).cuda()).pow(2).mean()
    loss.backward()
    optimizer.step()
"""
