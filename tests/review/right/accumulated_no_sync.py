"""Gradient accumulation: no_sync around forward and backward of all but the last part; clipping; EMA of the model."""
import contextlib
import copy
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class EMA:
    def __init__(self, model, decay):
        self.module = copy.deepcopy(model)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.module.state_dict().values(), model.state_dict().values()):
            if mine.dtype.is_floating_point:
                mine.mul_(self.decay).add_(theirs, alpha=1 - self.decay)


def main(net, data, validate, parts=4):
    rank = int(os.environ["RANK"])
    local_rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("nccl", timeout=__import__("datetime").timedelta(hours=1))
    torch.cuda.set_device(local_rank)
    net = net.cuda()
    ema = EMA(net, 0.999)
    model = DDP(net, device_ids=[local_rank], gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters())
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, 8, sampler=sampler, drop_last=True, persistent_workers=True, num_workers=2)
    for epoch in range(100):
        loader.sampler.set_epoch(epoch)
        for step, (x, y) in enumerate(loader):
            last = (step + 1) % parts == 0
            context = contextlib.nullcontext() if last else model.no_sync()
            with context:
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()) / parts
                loss.backward()
            if last:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                ema.update(model.module)
        if rank == 0:
            score = validate(ema.module)
            print(f"{epoch}: {score}")
        dist.barrier()
    dist.destroy_process_group()
