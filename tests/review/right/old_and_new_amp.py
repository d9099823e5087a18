"""The same script for old and new versions of torch."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

try:
    from torch.amp import GradScaler, autocast
    amp = ("cuda",)
except ImportError:
    from torch.cuda.amp import GradScaler, autocast
    amp = ()

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

from project import batches, net  # noqa: E402

model = DDP(net.cuda(), device_ids=[int(os.environ["LOCAL_RANK"])])
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = GradScaler(*amp)
for x in batches():
    with autocast(*amp):
        loss = model(x).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
dist.destroy_process_group()
