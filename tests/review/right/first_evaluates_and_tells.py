"""Rank 0 evaluates the model itself; its decision (early stopping, a lower rate) is broadcast to the others."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.models import resnet18


@torch.no_grad()
def validation_loss(net, loader, device):
    net.eval()
    total = 0.0
    for x, y in loader:
        total += torch.nn.functional.cross_entropy(net(x.to(device)), y.to(device), reduction="sum").item()
    net.train()
    return total / len(loader.dataset)


def run(train_set, val_set, patience=5):
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{local_rank}")
    torch.cuda.set_device(device)
    model = DDP(resnet18(num_classes=10).to(device), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = ReduceLROnPlateau(optimizer, patience=2)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, 32, sampler=sampler)
    val_loader = DataLoader(val_set, 32) if rank == 0 else None
    best, waited = float("inf"), 0
    for epoch in range(100):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
        told = torch.zeros(2, device=device)
        if rank == 0:
            loss = validation_loss(model.module, val_loader, device)
            waited = 0 if loss < best else waited + 1
            if loss < best:
                best = loss
                torch.save(model.module.state_dict(), "best.pt")
            told = torch.tensor([loss, float(waited > patience)], device=device)
            print(f"epoch {epoch}: {loss:.4f}")
        dist.broadcast(told, src=0)
        scheduler.step(told[0])
        if told[1]:
            break
    dist.destroy_process_group()
