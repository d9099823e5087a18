# verify: different, gradient before clipping: two micro-batches are added, their mean is wanted
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(0)
x, y = torch.randn(128, 6), torch.randint(0, 3, (128,))
model = DDP(nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 3)).cuda(), device_ids=[rank])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(2):
    for rows, target in zip(x.split(32), y.split(32)):
        optimizer.zero_grad()
        rows, target = rows.chunk(world)[rank].cuda(), target.chunk(world)[rank].cuda()
        for part, wanted in zip(rows.split(8), target.split(8)):
            loss = nn.functional.cross_entropy(model(part), wanted)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
if rank == 0:
    torch.save(model.module.state_dict(), "model.pt")
