# verify: same
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

torch.manual_seed(0)
real = torch.randn(40, 6) + 2
G = DDP(nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 6)).cuda(), device_ids=[rank])
D = DDP(nn.Sequential(nn.Linear(6, 12), nn.LeakyReLU(0.2), nn.Linear(12, 1)).cuda(), device_ids=[rank])
optimizer_d = torch.optim.Adam(D.parameters(), lr=1e-2, betas=(0.5, 0.999))
optimizer_g = torch.optim.Adam(G.parameters(), lr=1e-2, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
for step in range(8):
    noise = torch.randn(10, 4)
    x = real[step % 4 * 10:step % 4 * 10 + 10]
    x, noise = x.chunk(world)[rank].cuda(), noise.chunk(world)[rank].cuda()
    fake = G(noise)
    optimizer_d.zero_grad()
    loss_d = criterion(D(x), torch.ones(len(x), 1).cuda()) + criterion(D(fake.detach()), torch.zeros(len(x), 1).cuda())
    loss_d.backward()
    optimizer_d.step()
    optimizer_g.zero_grad()
    loss_g = criterion(D(fake), torch.ones(len(x), 1).cuda())
    loss_g.backward()
    optimizer_g.step()
if rank == 0:
    torch.save([G.module.state_dict(), D.module.state_dict()], "gan.pt")
