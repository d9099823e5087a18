"""Evaluation and other things that are right, in one file."""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, SubsetRandomSampler


class Subset(DistributedSampler):
    pass


def worker(proc, args):
    args.proc = proc
    world = args.nodes * args.gpus
    rank = args.node * args.gpus + proc
    dist.init_process_group("nccl", "tcp://10.0.0.1:29500", rank=rank, world_size=world)
    torch.cuda.set_device(proc)
    net = args.build().cuda()
    model = DDP(net, [proc])
    ema = DDP(args.build().cuda(), [proc])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train = DataLoader(args.train, args.batch // world, sampler=Subset(args.train))
    test = DataLoader(args.test, 32, sampler=DistributedSampler(args.test, shuffle=False))
    begin = time.time()
    for epoch in range(args.epochs):
        for x, y in train:
            loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        seconds = 0
        with torch.no_grad():
            outs = []
            for x, _ in test:
                t = time.time()
                outs.append(model(x.cuda()).cpu())
                seconds += time.time() - t
        torch.save(torch.cat(outs), f"out{proc}.pt")
        if proc == 0:
            with torch.no_grad():
                net.eval()
                print(net(next(iter(test))[0].cuda()).mean().item(), seconds, time.time() - begin)
                net.train()
            if args.node == 0:
                torch.save(net.state_dict(), args.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--node", type=int, default=0)
    parser.add_argument("--batch", type=int, default=256, help="total batch size over all gpus")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", default="net.pt")
    args = parser.parse_args()
    print("batch of a GPU:", args.batch // args.nodes // args.gpus)
    for _ in range(1):
        print("starting")
    mp.spawn(worker, nprocs=args.gpus, args=(args,))
    print(torch.load(args.out).keys())
