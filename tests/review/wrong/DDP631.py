# Data that are cut twice. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
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
