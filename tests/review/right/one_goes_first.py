"""Preprocessing by the first process of a node while the others wait; and a context that says the same."""
import contextlib
import os
import pickle

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from tqdm.auto import tqdm, trange


@contextlib.contextmanager
def torch_distributed_zero_first(local_rank):
    if local_rank not in [-1, 0]:
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()


def load_and_cache(args, tokenize):
    if args.local_rank not in [-1, 0]:
        torch.distributed.barrier()
    path = os.path.join(args.data_dir, "cached")
    if os.path.exists(path):
        with open(path, "rb") as file:
            features = pickle.load(file)
    else:
        features = tokenize(args.data_dir)
        if args.local_rank in [-1, 0]:
            torch.save(features, path)
    if args.local_rank == 0:
        torch.distributed.barrier()
    return TensorDataset(*features)


def train(args, model, tokenize):
    args.local_rank = int(os.environ.get("LOCAL_RANK", -1))
    if args.local_rank == -1:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    else:
        torch.cuda.set_device(args.local_rank)
        device = torch.device("cuda", args.local_rank)
        dist.init_process_group(backend="nccl")
    with torch_distributed_zero_first(args.local_rank):
        model.load_weights(args.name)
    model.to(device)
    dataset = load_and_cache(args, tokenize)
    sampler = DistributedSampler(dataset) if args.local_rank != -1 else torch.utils.data.RandomSampler(dataset)
    loader = DataLoader(dataset, sampler=sampler, batch_size=args.per_gpu_batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    if args.local_rank != -1:
        model = DDP(model, device_ids=[args.local_rank], output_device=args.local_rank, find_unused_parameters=True)
    for epoch in trange(args.epochs, desc="Epoch", disable=args.local_rank not in [-1, 0]):
        if args.local_rank != -1:
            sampler.set_epoch(epoch)
        for batch in tqdm(loader, desc="Iteration", disable=args.local_rank not in [-1, 0]):
            loss = model(*(t.to(device) for t in batch))[0]
            loss.backward()
            optimizer.step()
            model.zero_grad()
        if args.local_rank in [-1, 0]:
            bare = model.module if hasattr(model, "module") else model
            torch.save(bare.state_dict(), os.path.join(args.out, f"{epoch}.bin"))
    if args.local_rank != -1:
        dist.destroy_process_group()
