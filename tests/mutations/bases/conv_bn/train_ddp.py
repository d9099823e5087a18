"""The port: contiguous chunks, BatchNorm as it is, evaluation shared out with rank 0's buffers."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(2)
images = torch.randn(18, 3, 6, 6)
labels = torch.randint(4, (18,))
loader = DataLoader(TensorDataset(images, labels), batch_size=6, shuffle=True)
test = DataLoader(TensorDataset(images[:12] + 0.1, labels[:12]), batch_size=6)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


model = Net().cuda()
net = DDP(model, device_ids=[rank])
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

for epoch in range(3):
    net.train()
    for x, y in loader:
        x, y = x.chunk(world)[rank], y.chunk(world)[rank]
        loss = F.cross_entropy(net(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    for buffer in net.module.buffers():
        dist.broadcast(buffer, 0)
    sums = torch.zeros(2, device=rank)
    with torch.no_grad():
        for x, y in test:
            x, y = x.chunk(world)[rank].cuda(), y.chunk(world)[rank].cuda()
            out = net.module(x)
            sums[0] += F.cross_entropy(out, y, reduction="sum")
            sums[1] += (out.argmax(1) == y).sum()
    dist.all_reduce(sums)
    if rank == 0:
        print(f"epoch {epoch}: test loss {sums[0].item() / 12:.6f}, {int(sums[1])} of 12 right")
if rank == 0:
    torch.save({"net": net.module.state_dict(), "optimizer": optimizer.state_dict()}, "net.pt")
dist.destroy_process_group()
