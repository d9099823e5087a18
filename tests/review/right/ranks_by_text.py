"""Ranks and flags that are looked up by texts: in the environment, in a config, by getattr."""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter

config = {"lr": 0.1, "folder": "out", "shows": os.environ.get("RANK", "0") == "0"}
config["tracks"] = int(os.environ["RANK"]) == 0


class Log:
    def __init__(self, on):
        self.on = on

    def line(self, *words):
        if self.on:
            print(*words)

    def keep(self, model, path):
        if self.on:
            torch.save(model.module.state_dict(), path)


dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

from project import args, batches, net  # noqa: E402

model = DistributedDataParallel(net.cuda(), device_ids=[int(os.environ["LOCAL_RANK"])])
optimizer = torch.optim.SGD(model.parameters(), config["lr"])
log = Log(dist.get_rank() == 0)
writer = SummaryWriter(config["folder"]) if config["tracks"] else None
for epoch in range(10):
    for x in batches():
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    log.line("epoch", epoch, loss.item())
    log.keep(model, "last.pt")
    if config["shows"]:
        print(epoch, loss.item())
    if os.environ["RANK"] == "0":
        torch.save(model.module.state_dict(), f"{epoch}.pt")
    if getattr(args, "local_rank", -1) in (-1, 0):
        print("kept", epoch, file=sys.stderr)
        torch.save(optimizer.state_dict(), "optimizer.pt")
    match epoch:
        case 9 if int(os.environ["RANK"]) == 0:
            print("the last one")
dist.destroy_process_group()
