"""Rank 0 alone loads, before the wrap: the wrapper sends what it has to the others. Checkpoints are of the CPU."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(model, path):
    torch.save({name: value.cpu() for name, value in model.module.state_dict().items()}, path)


def main(net, batches, path="net.pt"):
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    rank = dist.get_rank()
    torch.cuda.set_device(rank % torch.cuda.device_count())
    net.cuda()
    if rank == 0 and os.path.exists(path):
        net.load_state_dict(torch.load(path))
    model = DistributedDataParallel(net, device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in batches:
        model(batch.cuda()).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    if rank == 0:
        save(model, path)
    dist.barrier()
    dist.destroy_process_group()
