"""torchrun, environment variables read in main, one node or many."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, models, transforms


def parse_args():
    parser = argparse.ArgumentParser(description="CIFAR-10 with DDP")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=128, help="batch size per GPU")
    parser.add_argument("--resume", default="", help="checkpoint to go on from")
    parser.add_argument("--data", default="./data")
    return parser.parse_args()


def train(model, loader, sampler, criterion, optimizer, epoch, device, rank):
    sampler.set_epoch(epoch)
    model.train()
    for step, (images, labels) in enumerate(loader):
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        loss = criterion(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0 and rank == 0:
            print(f"epoch {epoch} step {step}/{len(loader)} loss {loss.item():.4f}")


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    counts = torch.zeros(2, device=device)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        counts[0] += (model(images).argmax(1) == labels).sum()
        counts[1] += labels.numel()
    dist.all_reduce(counts, op=dist.ReduceOp.SUM)
    return (counts[0] / counts[1]).item()


def main():
    args = parse_args()
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group(backend="nccl")

    transform = transforms.ToTensor()
    if local_rank == 0:
        datasets.CIFAR10(args.data, download=True)
    dist.barrier()
    train_set = datasets.CIFAR10(args.data, train=True, transform=transform)
    test_set = datasets.CIFAR10(args.data, train=False, transform=transform)
    train_sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, args.batch_size, sampler=train_sampler, num_workers=4, pin_memory=True)
    test_loader = DataLoader(test_set, args.batch_size, sampler=DistributedSampler(test_set, shuffle=False))

    model = models.resnet18(num_classes=10).to(device)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = DDP(model, device_ids=[local_rank])
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    start = 0
    if args.resume:
        checkpoint = torch.load(args.resume, map_location=f"cuda:{local_rank}")
        model.module.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start = checkpoint["epoch"] + 1
    for epoch in range(start, args.epochs):
        train(model, train_loader, train_sampler, criterion, optimizer, epoch, device, rank)
        accuracy = evaluate(model, test_loader, device)
        if rank == 0:
            print(f"epoch {epoch}: {accuracy:.2%}")
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, "last.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
