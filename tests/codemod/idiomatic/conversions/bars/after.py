"""Progress bars that have a name, over training and evaluation."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm
import os
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=8)

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world_size = dist.get_rank(), dist.get_world_size()

args = parser.parse_args()

torch.manual_seed(0)
inputs, targets = torch.randn(96, 12), torch.randint(0, 3, (96,))
train_set, val_set = TensorDataset(inputs[:64], targets[:64]), TensorDataset(inputs[64:], targets[64:])
train_loader = DataLoader(train_set, batch_size=args.batch_size // world_size, sampler=DistributedSampler(train_set))
val_loader = DataLoader(val_set, batch_size=args.batch_size)


def train(epoch, model, optimizer):
    model.train()
    pbar = tqdm(enumerate(train_loader), total=len(train_loader), desc="Epoch %d" % epoch, disable=rank != 0)
    for i, (x, y) in pbar:
        x, y = x.cuda(), y.cuda()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if i % 2 == 0:
            pbar.set_postfix(loss=f"{loss.item():.4f}")
    pbar.close()


def evaluate(model):
    model.eval()
    correct = 0
    with torch.no_grad(), tqdm(val_loader, disable=rank != 0) as bar:
        for x, y in bar:
            bar.set_description("testing")
            correct += (model(x.cuda()).argmax(1) == y.cuda()).sum().item()
        if rank == 0:
            bar.write(f"{correct} right")
    return correct / len(val_set)


def main():
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3)).cuda(), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        train_loader.sampler.set_epoch(epoch)
        train(epoch, model, optimizer)
        accuracy = evaluate(model)
        if rank == 0:
            print("epoch", epoch, "accuracy", accuracy)
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pth")


if __name__ == "__main__":
    main()
dist.destroy_process_group()
