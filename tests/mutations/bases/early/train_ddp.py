"""The port: the evaluation is shared out by rows, its sum is every rank's."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(10)
x = torch.randn(36, 5)
y = x.sum(1, keepdim=True) + torch.linspace(0, 8, 36)[:, None]
train = DataLoader(TensorDataset(x[:24], y[:24]), batch_size=12, shuffle=True)
test_x, test_y = x[24:35], y[24:35]
net = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 1)).cuda()
net = DDP(net, device_ids=[rank])
optimizer = torch.optim.Adam(net.parameters(), lr=0.2)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
best, since = float("inf"), 0

for epoch in range(8):
    for a, b in train:
        a, b = a.chunk(world)[rank], b.chunk(world)[rank]
        loss = F.mse_loss(net(a.cuda()), b.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        a, b = test_x.chunk(world)[rank].cuda(), test_y.chunk(world)[rank].cuda()
        total = F.mse_loss(net.module(a), b, reduction="sum")
        dist.all_reduce(total)
        score = total.item() / len(test_x)
    scheduler.step(score)
    if rank == 0:
        print(f"epoch {epoch}: {score:.6f}")
    if score < best:
        best, since = score, 0
        if rank == 0:
            torch.save({"epoch": epoch, "net": net.module.state_dict()}, "best.pt")
    else:
        since += 1
        if since == 2:
            if rank == 0:
                print("no better for two epochs")
            break
dist.destroy_process_group()
