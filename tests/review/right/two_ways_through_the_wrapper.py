"""Ranks meet in the wrapper's forward on two ways; functions of old names are listed, and not called."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

OLD = (torch.cuda.amp.autocast, dist._all_gather_base, dist._reduce_scatter_base)
NEW = {dist._all_gather_base: dist.all_gather_into_tensor}


def scaler(new):
    return torch.amp.GradScaler("cuda") if new else torch.cuda.amp.GradScaler()


dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = torch.nn.Linear(2, 2).cuda()
model = DDP(net, device_ids=[torch.cuda.current_device()])
if dist.get_rank() == 0:
    out = model(torch.zeros(1, 2).cuda())
    out.sum().backward()
else:
    out = model(torch.ones(1, 2).cuda())
    out.sum().backward()
dist.destroy_process_group()
