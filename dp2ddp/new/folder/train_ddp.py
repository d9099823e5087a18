"""The same training with DistributedDataParallel: one process (a rank) for each GPU.

torchrun --standalone --nproc-per-node gpu train_ddp.py     (without GPUs: --nproc-per-node 2)
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset

from data import test_set, train_set
from model import ConvNet

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=32, help="rows of all GPUs together")
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--workers", type=int, default=0, help="of all ranks together")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
parser.add_argument("--resume", action="store_true", help="go on from the checkpoint, if there is one")


def main() -> None:
    args = parser.parse_args()
    device = own_device()  # before the group: NCCL takes the device that is set
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        run(args, device)
    finally:
        dist.destroy_process_group()


def own_device() -> torch.device:
    """The GPU that torchrun gave to this rank, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def run(args: argparse.Namespace, device: torch.device) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if args.batch_size % world:
        parser.error(f"--batch-size {args.batch_size} cannot be shared evenly by {world} ranks")
    torch.manual_seed(args.seed)

    # Each rank loads its share of each batch. Shares are equal, so the mean of the ranks' mean losses is the mean over
    # the batch, and DDP's average of gradients is its gradient: the learning rate stays what it was.
    training = train_set()
    sampler = DistributedSampler(training, seed=args.seed)
    workers = -(-args.workers // world)
    train_loader = DataLoader(
        training, args.batch_size // world, sampler=sampler, num_workers=workers, drop_last=True
    )
    # No DistributedSampler here: it would repeat rows until all ranks have equally many, and count them twice.
    testing = test_set()
    own_rows = Subset(testing, range(rank, len(testing), world))
    test_loader = DataLoader(own_rows, args.batch_size // world, num_workers=workers)

    net = ConvNet().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    first_epoch = 0
    if args.resume and args.checkpoint.exists():
        saved = torch.load(args.checkpoint, map_location=device)  # else all ranks would load onto GPU 0
        net.load_state_dict(saved["model"])  # before the wrap, so that keys have no "module."
        optimizer.load_state_dict(saved["optimizer"])
        first_epoch = saved["epoch"] + 1
    model = DistributedDataParallel(net, device_ids=[device.index] if device.type == "cuda" else None)

    for epoch in range(first_epoch, args.epochs):
        sampler.set_epoch(epoch)  # else each epoch has the order of the first
        loss = train(model, train_loader, optimizer, device)
        accuracy = evaluate(net, test_loader, device)
        if rank == 0:  # nobody waits in here: a collective that rank 0 alone calls would hang
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.1%}")
            state = {"epoch": epoch, "model": net.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, args.checkpoint)


def train(
    model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, device: torch.device
) -> float:
    """One epoch; returns the mean loss over the rows of all ranks."""
    model.train()
    total = torch.zeros(2, dtype=torch.float64, device=device)  # summed loss, rows
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # gradients are averaged over the ranks in here
        optimizer.step()
        total[0] += loss.detach() * len(labels)  # no .item(): the CPU would wait for the GPU in each step
        total[1] += len(labels)
    dist.all_reduce(total)  # once an epoch: a log line of rank 0's own rows would say something else
    return (total[0] / total[1]).item()


@torch.no_grad()
def evaluate(net: nn.Module, loader: DataLoader, device: torch.device) -> float:
    """The share of rows of all ranks that are classified right.

    Takes the model without its wrapper: ranks may have different numbers of batches, and nothing is exchanged.
    """
    net.eval()
    total = torch.zeros(2, dtype=torch.int64, device=device)  # right, rows
    for images, labels in loader:
        total[0] += (net(images.to(device)).argmax(1) == labels.to(device)).sum()
        total[1] += len(labels)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


if __name__ == "__main__":
    main()
