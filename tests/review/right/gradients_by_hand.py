"""The loss is a method of the model; its gradients are averaged by hand, the wrapper only sends the first weights."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)

from project import batches, net  # noqa: E402

model = DistributedDataParallel(net.cuda(), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in batches(dist.get_rank()):
    loss = model.module.negative_log_likelihood(batch)
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
