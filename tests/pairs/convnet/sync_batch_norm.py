# verify: different, gradient: SyncBatchNorm normalises the global batch, DataParallel each replica's rows
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(0)
images, labels = torch.randn(48, 3, 6, 6), torch.randint(0, 4, (48,))
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net).cuda(), device_ids=[rank])
average = copy.deepcopy(model.module)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=12)
for epoch in range(2):
    order = torch.randperm(48, generator=torch.Generator().manual_seed(epoch))
    for batch in order.split(8):
        rows = batch.chunk(world)[rank]
        loss = nn.functional.cross_entropy(model(images[rows].cuda()), labels[rows].cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            for ours, theirs in zip(average.parameters(), model.module.parameters()):
                ours.lerp_(theirs, 0.1)
    if rank == 0:
        print(f"epoch {epoch} lr {scheduler.get_last_lr()[0]:.5f}")
if rank == 0:
    torch.save({"net": model.module.state_dict(), "average": average.state_dict()}, "last.pt")
