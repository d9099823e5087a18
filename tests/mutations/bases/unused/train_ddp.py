"""The port: what nobody used gets zeros, as DataParallel gives them."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(12)
inputs, targets = torch.randn(32, 4), torch.randn(32, 2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 10)
        self.first = nn.Linear(10, 2)
        self.second = nn.Linear(10, 2)

    def forward(self, x, both):
        x = torch.relu(self.stem(x))
        return self.first(x) + self.second(x) if both else self.first(x)


net = Net()
net.stem.bias.requires_grad_(False)
net = DDP(net.cuda(), device_ids=[rank], find_unused_parameters=True)
parameters = [p for p in net.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.05)

for step in range(6):
    rows = (torch.arange(6) + 4 * step).chunk(world)[rank]
    loss = F.mse_loss(net(inputs[rows].cuda(), step % 3 == 2), targets[rows].cuda())
    optimizer.zero_grad()
    loss.backward()
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
dist.destroy_process_group()
