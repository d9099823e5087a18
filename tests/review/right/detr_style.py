"""Helpers in the script's own file, as DETR's util/misc.py has them: print is muted, save_on_master."""
import builtins
import os
from collections import defaultdict, deque

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, SequentialSampler


class SmoothedValue:
    def __init__(self, window_size=20):
        self.deque = deque(maxlen=window_size)
        self.total, self.count = 0.0, 0

    def update(self, value, n=1):
        self.deque.append(value)
        self.count += n
        self.total += value * n

    def synchronize_between_processes(self):
        if not is_dist_avail_and_initialized():
            return
        t = torch.tensor([self.count, self.total], dtype=torch.float64, device="cuda")
        dist.barrier()
        dist.all_reduce(t)
        t = t.tolist()
        self.count, self.total = int(t[0]), t[1]

    @property
    def global_avg(self):
        return self.total / self.count


def setup_for_distributed(is_master):
    builtin_print = builtins.print

    def print(*args, **kwargs):
        force = kwargs.pop("force", False)
        if is_master or force:
            builtin_print(*args, **kwargs)

    builtins.print = print


def is_dist_avail_and_initialized():
    if not dist.is_available():
        return False
    if not dist.is_initialized():
        return False
    return True


def get_rank():
    if not is_dist_avail_and_initialized():
        return 0
    return dist.get_rank()


def is_main_process():
    return get_rank() == 0


def save_on_master(*args, **kwargs):
    if is_main_process():
        torch.save(*args, **kwargs)


def init_distributed_mode(args):
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        args.rank = int(os.environ["RANK"])
        args.world_size = int(os.environ["WORLD_SIZE"])
        args.gpu = int(os.environ["LOCAL_RANK"])
    elif "SLURM_PROCID" in os.environ:
        args.rank = int(os.environ["SLURM_PROCID"])
        args.gpu = args.rank % torch.cuda.device_count()
    else:
        print("Not using distributed mode")
        args.distributed = False
        return
    args.distributed = True
    torch.cuda.set_device(args.gpu)
    args.dist_backend = "nccl"
    print("| distributed init (rank {}): {}".format(args.rank, args.dist_url), flush=True)
    torch.distributed.init_process_group(
        backend=args.dist_backend, init_method=args.dist_url, world_size=args.world_size, rank=args.rank
    )
    torch.distributed.barrier()
    setup_for_distributed(args.rank == 0)


def train_one_epoch(model, criterion, loader, optimizer, device, epoch):
    model.train()
    meters = defaultdict(SmoothedValue)
    for samples, targets in loader:
        losses = criterion(model(samples.to(device)), targets)
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
        meters["loss"].update(losses.item())
    for meter in meters.values():
        meter.synchronize_between_processes()
    print("Averaged stats:", meters["loss"].global_avg)
    return meters["loss"].global_avg


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    hits = SmoothedValue()
    for samples, targets in loader:
        hits.update((model(samples.to(device)).argmax(1).cpu() == targets).float().mean().item(), len(targets))
    hits.synchronize_between_processes()
    print("accuracy", hits.global_avg)
    return hits.global_avg


def main(args, build_model, build_dataset):
    init_distributed_mode(args)
    device = torch.device(args.device)
    model, criterion = build_model(args)
    model.to(device)
    model_without_ddp = model
    if args.distributed:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
        model_without_ddp = model.module
    optimizer = torch.optim.AdamW(model_without_ddp.parameters(), lr=args.lr)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, args.lr_drop)
    train_set, val_set = build_dataset("train", args), build_dataset("val", args)
    if args.distributed:
        sampler_train = DistributedSampler(train_set)
        sampler_val = DistributedSampler(val_set, shuffle=False)
    else:
        sampler_train = torch.utils.data.RandomSampler(train_set)
        sampler_val = SequentialSampler(val_set)
    batch_sampler_train = torch.utils.data.BatchSampler(sampler_train, args.batch_size, drop_last=True)
    loader_train = DataLoader(train_set, batch_sampler=batch_sampler_train, num_workers=args.num_workers)
    loader_val = DataLoader(val_set, args.batch_size, sampler=sampler_val, drop_last=False)
    if args.resume:
        checkpoint = torch.load(args.resume, map_location="cpu")
        model_without_ddp.load_state_dict(checkpoint["model"])
        if "optimizer" in checkpoint and "epoch" in checkpoint:
            optimizer.load_state_dict(checkpoint["optimizer"])
            args.start_epoch = checkpoint["epoch"] + 1
    if args.eval:
        evaluate(model, loader_val, device)
        return
    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            sampler_train.set_epoch(epoch)
        train_one_epoch(model, criterion, loader_train, optimizer, device, epoch)
        lr_scheduler.step()
        if args.output_dir:
            for path in [args.output_dir / "checkpoint.pth"]:
                save_on_master({"model": model_without_ddp.state_dict(), "epoch": epoch}, path)
        accuracy = evaluate(model, loader_val, device)
        if args.output_dir and is_main_process():
            with (args.output_dir / "log.txt").open("a") as f:
                f.write(f"{epoch} {accuracy}\n")
    if args.distributed:
        dist.destroy_process_group()
