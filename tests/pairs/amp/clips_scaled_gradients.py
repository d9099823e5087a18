# verify: different, gradient before clipping: clipped before they are unscaled
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(0)
x, y = torch.randn(32, 8), torch.randn(32, 3)
model = DDP(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
for step in range(8):
    rows, target = x[step % 4 * 8:step % 4 * 8 + 8].cuda(), y[step % 4 * 8:step % 4 * 8 + 8].cuda()
    rows, target = rows.chunk(world)[rank], target.chunk(world)[rank]
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(rows).float(), target)
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
if rank == 0:
    torch.save({"model": model.module.state_dict(), "scaler": scaler.state_dict()}, "amp.pt")
