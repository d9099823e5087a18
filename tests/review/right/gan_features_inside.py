"""A GAN that trains D through its wrapper and looks at features inside; loads on rank 0 before; old launch arguments."""
import argparse
import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
parser.add_argument("--batch", type=int, default=64, help="batch size per GPU; the effective batch is this times GPUs")
parser.add_argument("--devices", default="")
args = parser.parse_args()
if args.devices:
    os.environ["CUDA_VISIBLE_DEVICES"] = args.devices
if "LOCAL_RANK" not in os.environ:
    raise SystemExit(subprocess.call([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *sys.argv]))

from project import data, discriminator, generator  # noqa: E402

dist.init_process_group("nccl")
torch.cuda.set_device(args.local_rank)
rank = dist.get_rank()
G = DDP(generator.cuda(), device_ids=[args.local_rank])
D = DDP(discriminator.cuda(), device_ids=[args.local_rank])
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, args.batch, sampler=sampler, drop_last=True)
optimizers = [torch.optim.Adam(m.parameters()) for m in (G, D)]
for epoch in range(10):
    sampler.set_epoch(epoch)
    for i, x in enumerate(loader):
        x = x.cuda()
        fake = G(torch.randn(len(x), 8).cuda())
        d_loss = D(fake.detach()).mean() - D(x).mean()
        optimizers[1].zero_grad()
        d_loss.backward()
        optimizers[1].step()
        with torch.no_grad():
            real = D.module.features(x)
        g_loss = (D.module.features(fake) - real).abs().mean() - D(fake).mean()
        optimizers[0].zero_grad()
        g_loss.backward()
        optimizers[0].step()
        if i % 100 == 0 and rank == 0:
            print(epoch, i, d_loss.item(), g_loss.item())
    if rank == 0:
        G.eval()
        with torch.no_grad():
            images = G.module(torch.randn(16, 8).cuda())
        G.train()
        torch.save({"images": images.cpu(), "g": G.module.state_dict()}, f"{epoch}.pt")
        for p in D.parameters():
            p.grad = None
    torch.distributed.barrier()
dist.barrier()
dist.destroy_process_group()
