"""A model whose parts are not all used in every pass, without an `if`: unused parameters have to be looked for."""
import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.experts[random.randrange(4)](x))


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).detach())


dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
experts = DistributedDataParallel(Experts().cuda(), device_ids=[local_rank], find_unused_parameters=True)
probe = DistributedDataParallel(Probe().cuda(), device_ids=[local_rank], find_unused_parameters=True)
(experts(torch.rand(4, 8).cuda()) + probe(torch.rand(4, 8).cuda())).sum().backward()
dist.destroy_process_group()
