"""CLIP-like: features of all ranks with gradients by torch.distributed.nn; logit scale; a queue that is the same on all."""
import os

import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        output = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(output, x)
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        all_gradients = torch.stack(grads)
        dist.all_reduce(all_gradients)
        return all_gradients[dist.get_rank()]


class ClipLoss(nn.Module):
    def __init__(self, rank, world_size):
        super().__init__()
        self.rank, self.world_size = rank, world_size

    def forward(self, image, text, scale):
        everyone_image = torch.cat(torch.distributed.nn.all_gather(image))
        everyone_text = torch.cat(GatherLayer.apply(text))
        labels = torch.arange(len(image), device=image.device) + self.rank * len(image)
        return (
            F.cross_entropy(scale * image @ everyone_text.T, labels)
            + F.cross_entropy(scale * text @ everyone_image.T, labels)
        ) / 2


def main(net, data):
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device(f"cuda:{local_rank}")
    model = DDP(net.to(device), device_ids=[device])
    criterion = ClipLoss(dist.get_rank(), dist.get_world_size())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 256, sampler=sampler, num_workers=8, drop_last=True)
    for epoch in range(32):
        sampler.set_epoch(epoch)
        for images, texts in loader:
            image, text, scale = model(images.to(device), texts.to(device))
            loss = criterion(image, text, scale)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                model.module.logit_scale.clamp_(0, 4.6052)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.3f} scale {model.module.logit_scale.exp().item():.2f}")
            torch.save({"state": model.module.state_dict(), "epoch": epoch}, f"epoch_{epoch}.pt")
    dist.destroy_process_group()
