import torch
from torch.nn.parallel import DistributedDataParallel

from .data import loaders
from .hooks import Checkpoint, Epochs, Log
from .nets import UNet


def worker(rank, world_size, config):
    train, val, sampler = loaders(config, rank, world_size)
    model = DistributedDataParallel(UNet().to(rank), device_ids=[rank], output_device=rank)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    hooks = [Epochs(sampler)]
    if rank == 0:
        hooks += [Log(), Checkpoint(model.module, "out")]
    best = float("inf")
    for epoch in range(50):
        for hook in hooks:
            hook.before(epoch)
        for x, y in train:
            loss = torch.nn.functional.cross_entropy(model(x.to(rank)), y.to(rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for hook in hooks:
                hook.step(loss)
        if rank == 0:
            model.eval()
            with torch.no_grad():
                total = sum(
                    torch.nn.functional.cross_entropy(model.module(x.to(rank)), y.to(rank)).item() for x, y in val
                )
            best = min(best, total)
            print(f"epoch {epoch}: {total:.3f}, best {best:.3f}")
            model.train()
        for hook in hooks:
            hook.after(epoch)
