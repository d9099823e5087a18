# verify: same
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main(args):
    dist.init_process_group("nccl")
    rank, world, local_rank = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(96, 10, generator=generator)
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).long()
    train_set, test_set = TensorDataset(x[:64], y[:64]), TensorDataset(x[64:], y[64:])
    train_sampler = DistributedSampler(train_set, shuffle=False)
    train_loader = DataLoader(train_set, batch_size=args.batch_size // world, sampler=train_sampler, pin_memory=True)
    test_loader = DataLoader(test_set, batch_size=args.batch_size // world, sampler=DistributedSampler(test_set, shuffle=False))

    model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 2)).cuda()
    model = DDP(model, device_ids=[local_rank])
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        model.train()
        total = torch.zeros(1).cuda()
        for data, target in train_loader:
            data, target = data.cuda(non_blocking=True), target.cuda(non_blocking=True)
            optimizer.zero_grad()
            loss = criterion(model(data), target)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.detach()
        scheduler.step()
        model.eval()
        correct = torch.zeros(1).cuda()
        with torch.no_grad():
            for data, target in test_loader:
                correct += (model(data.cuda()).argmax(1) == target.cuda()).sum()
        dist.all_reduce(total)
        dist.all_reduce(correct)
        if rank == 0:
            print(f"epoch {epoch} loss {total.item() / world / len(train_loader):.4f} accuracy {correct.item() / 32:.4f}")

    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    main(args)
