"""The port without a wrapper: broadcast at the start, gradients averaged by hand."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(3)
inputs, targets = torch.randn(32, 5), torch.randn(32, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(5, 12)
        self.norm = nn.LayerNorm(12)
        self.decoder = nn.Linear(12, 3)

    def forward(self, x):
        return self.decoder(torch.tanh(self.norm(self.encoder(x))))


net = Net().cuda()
for parameter in net.parameters():
    dist.broadcast(parameter.data, 0)
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)


def average_gradients():
    for name, parameter in net.named_parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world


for step in range(8):
    rows = torch.randperm(32)[:6].chunk(world)[rank]
    loss = F.mse_loss(net(inputs[rows].cuda()), targets[rows].cuda())
    optimizer.zero_grad()
    loss.backward()
    average_gradients()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
    scheduler.step()
    if rank == 0:
        print(f"step {step}: norm {norm.item():.6f}, lr {scheduler.get_last_lr()[0]:.6f}")
dist.destroy_process_group()
