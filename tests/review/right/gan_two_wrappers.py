"""A GAN with two wrappers: the discriminator's parameters are frozen in the generator's step."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.utils import save_image


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


def sample_data(loader, sampler):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def main(args, generator, discriminator, g_ema, dataset):
    args.local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(args.local_rank)
    dist.init_process_group(backend="nccl", init_method="env://")
    generator, discriminator, g_ema = generator.cuda(), discriminator.cuda(), g_ema.cuda()
    g_optim = torch.optim.Adam(generator.parameters(), lr=args.lr, betas=(0, 0.99))
    d_optim = torch.optim.Adam(discriminator.parameters(), lr=args.lr, betas=(0, 0.99))
    if args.ckpt is not None:
        ckpt = torch.load(args.ckpt, map_location=lambda storage, loc: storage)
        generator.load_state_dict(ckpt["g"])
        discriminator.load_state_dict(ckpt["d"])
    generator = DDP(generator, device_ids=[args.local_rank], broadcast_buffers=False)
    discriminator = DDP(discriminator, device_ids=[args.local_rank], broadcast_buffers=False,
                        find_unused_parameters=True)
    sampler = DistributedSampler(dataset)
    loader = sample_data(DataLoader(dataset, args.batch, sampler=sampler, drop_last=True), sampler)
    g_module = generator.module
    for i in range(args.iter):
        real = next(loader).cuda()
        requires_grad(generator, False)
        requires_grad(discriminator, True)
        noise = torch.randn(args.batch, 512, device="cuda")
        d_loss = F.softplus(discriminator(generator(noise))).mean() + F.softplus(-discriminator(real)).mean()
        discriminator.zero_grad()
        d_loss.backward()
        d_optim.step()
        requires_grad(generator, True)
        requires_grad(discriminator, False)
        g_loss = F.softplus(-discriminator(generator(noise))).mean()
        generator.zero_grad()
        g_loss.backward()
        g_optim.step()
        for p, q in zip(g_ema.parameters(), g_module.parameters()):
            p.data.mul_(0.999).add_(q.data, alpha=0.001)
        if dist.get_rank() == 0:
            print(f"d: {d_loss.item():.4f}; g: {g_loss.item():.4f}")
            if i % 100 == 0:
                with torch.no_grad():
                    g_ema.eval()
                    save_image(g_ema(noise[:16]), f"sample/{i}.png", nrow=4, normalize=True)
            if i % 10000 == 0:
                torch.save({"g": g_module.state_dict(), "d": discriminator.module.state_dict()}, f"{i}.pt")
    dist.destroy_process_group()
