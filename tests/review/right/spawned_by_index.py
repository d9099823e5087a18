"""The spawned function calls its rank `i`, and writes on the first one."""
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def run(i, n, options):
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:23456", world_size=n, rank=i)
    torch.cuda.set_device(i)
    model = DistributedDataParallel(options.build().cuda(i), device_ids=[i])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(options.data, num_replicas=n, rank=i)
    loader = DataLoader(options.data, batch_size=32, sampler=sampler)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x.cuda(i)), y.cuda(i))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not i:
                print(epoch, loss.item())
        if i == 0:
            torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


def start(options):
    n = torch.cuda.device_count()
    mp.spawn(run, args=(n, options), nprocs=n)
