"""A writer that exists on one rank decides about everything that is written."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torch.utils.tensorboard import SummaryWriter


def train(model, loader, optimizer, device, epoch, chatty):
    for step, (x, y) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if chatty and step % 10 == 0:
            print(epoch, step, loss.item())


def main(net, data, epochs=10):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    writer = None
    if rank == 0:
        writer = SummaryWriter("runs")
    model = DistributedDataParallel(net.to(device), device_ids=[device])
    optimizer = torch.optim.Adam(model.parameters())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 64, sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        train(model, loader, optimizer, device, epoch, rank == 0)
        if writer:
            writer.add_scalar("lr", optimizer.param_groups[0]["lr"], epoch)
            torch.save(model.module.state_dict(), "last.pt")
            print("saved", epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    from project import make_data, make_net

    main(make_net(), make_data())
