"""Local SGD: the wrapper has a hook; parameters are averaged now and then; a profiler on each rank has its own file."""
import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import profile, schedule, tensorboard_trace_handler

dist.init_process_group("nccl")
rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)

from project import batches, net  # noqa: E402

model = DDP(net.cuda(), device_ids=[local_rank], bucket_cap_mb=50, gradient_as_bucket_view=True)
model.register_comm_hook(state=None, hook=default_hooks.fp16_compress_hook)
averager = PeriodicModelAverager(period=4, warmup_steps=100)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with profile(schedule=schedule(1, 1, 3), on_trace_ready=tensorboard_trace_handler(f"trace/{rank}")) as prof:
    for x in batches(rank):
        optimizer.zero_grad()
        model(x.cuda()).sum().backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
        prof.step()
torch.save(prof.key_averages().table(), f"profile{rank}.txt")
dist.barrier()
dist.destroy_process_group()
