# verify: same
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(7, 10), nn.ReLU())
        self.head = nn.Linear(10, 1)

    def forward(self, x):
        return self.head(self.encoder(x))


torch.manual_seed(0)
x = torch.randn(50, 7)
y = x.sum(1, keepdim=True)
model = Net().cuda()
model.encoder = DDP(model.encoder, device_ids=[rank])
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for epoch in range(2):
    for rows, target in zip(x.split(16), y.split(16)):
        whole = len(rows)
        rows, target = rows.chunk(world)[rank], target.chunk(world)[rank]
        loss = nn.functional.mse_loss(model(rows.cuda()), target.cuda(), reduction="sum") * world / whole
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.head.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
    with torch.no_grad():
        mine = model(x.chunk(world)[rank].cuda())
        parts = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(parts, mine)
        predicted = torch.cat(parts).cpu()
    if rank == 0:
        print(f"epoch {epoch} error {(predicted - y).abs().mean():.5f}")
