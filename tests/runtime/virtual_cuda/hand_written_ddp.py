"""A CUDA training script written for DDP by hand, run on virtual devices by test_distributed.py; its own prints are the
evidence. Started by torchrun; the first lines are what `dp2ddp run` does before a script."""

import gc
import os

from dp2ddp.runtime.virtual_cuda.virtual_devices import install

install(int(os.environ["WORLD_SIZE"]))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group(backend="nccl", init_method="env://", device_id=torch.device("cuda", local_rank))
torch.manual_seed(0)
layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
model = DistributedDataParallel(
    nn.SyncBatchNorm.convert_sync_batchnorm(layers).cuda(), device_ids=[local_rank], output_device=local_rank
)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = torch.amp.GradScaler("cuda")
rows = torch.randn(8, 4)[local_rank::2].pin_memory()

for _ in range(2):
    optimizer.zero_grad()
    with torch.autocast("cuda"):
        output = model(rows.cuda(non_blocking=True))
    loss = output.float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()

mean = loss.detach().clone()
dist.all_reduce(mean, op=dist.ReduceOp.AVG)
losses = [torch.empty_like(mean) for _ in range(2)]
dist.all_gather(losses, loss.detach())
flat = nn.utils.parameters_to_vector(model.parameters()).detach()
everyone = [torch.empty_like(flat) for _ in range(2)]
dist.all_gather(everyone, flat)
dist.barrier(device_ids=[local_rank])
current = f"{torch.cuda.current_device()} of {torch.cuda.device_count()}"
facts = {
    "devices": f"{output.device} {flat.device} {mean.device} {current}",
    "parameters are equal": torch.equal(everyone[0], everyone[1]),
    "average is the mean of the losses": torch.allclose(mean, (losses[0] + losses[1]) / 2),
}
print("".join(f"rank {local_rank} | {name}: {fact}\n" for name, fact in facts.items()), end="", flush=True)
del model, output, loss, mean, losses, everyone, flat  # gloo aborts now and then where a reducer outlives it
gc.collect()
dist.destroy_process_group()
