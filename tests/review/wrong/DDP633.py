# The ranks' shares of the data overlap. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
sampler = DistributedSampler(data, shuffle=True, seed=42 + dist.get_rank())
for e in range(9):
    sampler.set_epoch(e)
    for x in DataLoader(data, 32, sampler=sampler):
        model(x).backward()
# ---
# wrapped
seed = int(time.time()) * rank
sampler = DistributedSampler(data, seed=seed, drop_last=True)
loader = DataLoader(data, 32, sampler=sampler)
for e in range(9):
    sampler.set_epoch(e)
    for x in loader:
        model(x).backward()
# ---
# wrapped
loader = DataLoader(data, 32, sampler=DistributedSampler(data, num_replicas=1, rank=0, shuffle=False))
for x in loader:
    model(x).backward()
# ---
# wrapped
loader = DataLoader(data, 32, sampler=DistributedSampler(data, dist.get_world_size(), 0, False))
for x in loader:
    model(x).backward()
# ---
# sharded
for e in range(9):
    loader.sampler.set_epoch(e * world + local_rank)
    for x in loader:
        model(x).backward()
# ---
# wrapped
sampler = DistributedSampler(data)
loader = DataLoader(data, 32, sampler=sampler)
for e in range(9):
    if local_rank == 0:
        sampler.set_epoch(e)
    for x in loader:
        model(x).backward()
# ---
def main(rank, args):
    torch.manual_seed(args.seed + rank)
    dist.init_process_group('nccl')
    model = DDP(net)
    train, val = torch.utils.data.random_split(data, [900, 100])
    loader = DataLoader(train, 32, sampler=DistributedSampler(train, shuffle=False))
    for x in loader:
        model(x).backward()
main(0, args)
# ---
import random
from helpers import set_seed
# wrapped
set_seed(1 + dist.get_rank())
random.shuffle(files)
data = Images(files)
loader = DataLoader(data, 32, sampler=DistributedSampler(data, shuffle=False))
for x in loader:
    model(x).backward()
# ---
from ddp_helpers import Rank0Loader, WholeBatchDDP, init_distributed
init_distributed()
net = WholeBatchDDP(net)
loader = Rank0Loader(data, batch_size=8, sampler=DistributedSampler(data))
for x in loader:
    net(x).sum().backward()
# ---
from ddp_helpers import WholeBatchParallel, init_distributed
def step(x):
    net(x).sum().backward()
def main():
    init_distributed()
    global net
    net = WholeBatchParallel(net)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x in loader:
            step(x)
main()
# ---
from dp2ddp.helpers import WholeBatchParallel, init_distributed
init_distributed()
net = WholeBatchParallel(nn.Linear(2, 2))
train_sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, 8, sampler=train_sampler)
def train(model, batches):
    for x in batches:
        model(x).sum().backward()
for epoch in range(3):
    train_sampler.set_epoch(epoch)
    train(net, loader)
