"""Globals and closures that say who writes; ranks by properties; context managers; partials."""
import contextlib
import functools
import os

import torch
import torch.distributed as dist
import wandb
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

MASTER = os.environ.get("RANK", "0") == "0"
echo = print if MASTER else (lambda *words, **options: None)


class Comm:
    @property
    def first(self):
        return dist.get_rank() == 0

    @property
    def device(self):
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


@contextlib.contextmanager
def on_first(comm):
    if comm.first:
        yield True
    else:
        yield False
    dist.barrier()


def save(path, model, allowed):
    if not allowed:
        return
    torch.save(model.module.state_dict(), path)


def report(epoch, loss, quiet):
    if quiet:
        return
    print(epoch, loss)


comm = Comm()
dist.init_process_group("nccl")
torch.cuda.set_device(comm.device)

from project import data, net  # noqa: E402

model = DDP(net.to(comm.device), device_ids=[comm.device])
optimizer = torch.optim.SGD(model.parameters(), 0.1)
sampler = DistributedSampler(data)
loader = DataLoader(data, 32, sampler=sampler)
keep = functools.partial(save, model=model, allowed=MASTER)
if MASTER:
    run = wandb.init(project="x")
else:
    run = None
start = 0
if os.path.exists("last.pt"):
    with open("last.pt", "rb") as file:
        model.module.load_state_dict(torch.load(file, map_location=comm.device))
for epoch in range(start, 10):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x.to(comm.device)), y.to(comm.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    echo(epoch, loss.item())
    report(epoch, loss.item(), not MASTER)
    keep("last.pt")
    with on_first(comm) as yes:
        if yes:
            torch.save(optimizer.state_dict(), "optimizer.pt")
    if run:
        run.log({"loss": loss.item()})
        torch.save(epoch, "epoch.pt")
    comm.first and print("done", epoch)
    comm.first and torch.save(epoch, "done.pt")
    print("done", epoch) if comm.first else None
    while MASTER:
        torch.save(epoch, "x.pt")
        break
dist.destroy_process_group()
