"""Started by srun: ranks from SLURM's variables, one process a GPU, a logger by rank."""
import logging
import os
import subprocess

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def get_logger(rank):
    logger = logging.getLogger("train")
    logger.addHandler(logging.StreamHandler() if rank == 0 else logging.NullHandler())
    logger.setLevel(logging.INFO)
    return logger


def init_from_slurm(args):
    args.rank = int(os.environ["SLURM_PROCID"])
    args.gpu = int(os.environ["SLURM_LOCALID"])
    args.world_size = int(os.environ["SLURM_NTASKS"])
    nodes = subprocess.check_output(["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]])
    os.environ["MASTER_ADDR"] = nodes.split()[0].decode()
    os.environ["MASTER_PORT"] = str(20000 + int(os.environ["SLURM_JOB_ID"]) % 10000)
    dist.init_process_group("nccl", rank=args.rank, world_size=args.world_size)


def checkpoint(state, path, keep):
    if not keep:
        return
    tmp = path + ".tmp"
    torch.save(state, tmp)
    os.replace(tmp, path)


def main(args, net, data):
    init_from_slurm(args)
    torch.cuda.set_device(args.gpu)
    logger = get_logger(args.rank)
    model = DistributedDataParallel(net.cuda(args.gpu), device_ids=[args.gpu])
    optimizer = torch.optim.SGD(model.parameters(), args.lr)
    sampler = DistributedSampler(data, num_replicas=args.world_size, rank=args.rank, shuffle=True, seed=args.seed)
    loader = DataLoader(data, batch_size=args.batch_per_gpu, sampler=sampler, num_workers=8)
    start = 0
    if os.path.exists(args.checkpoint):
        state = torch.load(args.checkpoint, map_location=lambda storage, location: storage.cuda(args.gpu))
        model.load_state_dict(state["model"])
        start = state["epoch"]
    for epoch in range(start, args.epochs):
        sampler.set_epoch(epoch)
        for i, (x, y) in enumerate(loader):
            loss = torch.nn.functional.cross_entropy(model(x.cuda(args.gpu)), y.cuda(args.gpu))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 10 == 0:
                logger.info("epoch %d step %d loss %.3f", epoch, i, loss.item())
        checkpoint({"model": model.state_dict(), "epoch": epoch + 1}, args.checkpoint, args.rank == 0)
    dist.destroy_process_group()
