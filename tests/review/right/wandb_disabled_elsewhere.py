"""wandb is told by the environment to do nothing on other ranks."""
import os

import torch
import torch.distributed as dist
import wandb
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
if dist.get_rank() != 0:
    os.environ["WANDB_MODE"] = "disabled"
wandb.init(project="segmentation")

from project import batches, net  # noqa: E402

model = DistributedDataParallel(net.cuda(), device_ids=[local_rank])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step, (x, y) in enumerate(batches(dist.get_rank(), dist.get_world_size())):
    loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    wandb.log({"loss": loss.item()})
dist.destroy_process_group()
