"""The port: the same batches, each rank takes its chunk, the loss is weighted by its rows."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)


class Chunks:
    """Of each batch the chunk of this rank."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        for batch in self.batches:
            size = -(-len(batch) // world)
            yield batch[rank * size : (rank + 1) * size]

    def __len__(self):
        return len(self.batches)


torch.manual_seed(1)
x = torch.randn(23, 6)
data = TensorDataset(x, (x.sum(1) > 0).long())
batches = BatchSampler(RandomSampler(data), 6, drop_last=False)
loader = DataLoader(data, batch_sampler=Chunks(batches))

net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
net = DDP(net.cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(2):
    total = torch.zeros((), device=rank)
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        rows = torch.tensor(len(y), device=rank)
        dist.all_reduce(rows)
        loss = criterion(net(x), y)
        optimizer.zero_grad()
        (loss * len(y) * world / rows).backward()
        optimizer.step()
        total += loss.detach() * len(y)
    dist.all_reduce(total)
    if rank == 0:
        print(f"epoch {epoch}: loss {total.item() / len(data):.6f}")
        with open("log.txt", "a") as log:
            log.write(f"{epoch} {total.item() / len(data):.6f}\n")
if rank == 0:
    torch.save(net.state_dict(), "net.pt")
dist.destroy_process_group()
