# Every epoch has the same order: `set_epoch` is never called. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# sharded
for epoch in range(9):
    for x in loader:
        model(x).backward()
# ---
# wrapped
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, sampler=sampler)
epoch = 0
while epoch < 9:
    for i, x in enumerate(loader):
        loss = model(x)
        loss.backward()
    epoch += 1
# ---
class Trainer:
    def __init__(self, net, data):
        self.model = DDP(net)
        self.loader = DataLoader(data, sampler=DistributedSampler(data))
    def epoch(self):
        for x in self.loader:
            self.model(x).sum().backward()
    def fit(self):
        for epoch in range(9):
            self.epoch()
# ---
def train(model, batches):
    for x in batches:
        model(x).backward()
def main(net, data):
    model = DDP(net)
    loader = torch.utils.data.DataLoader(data, sampler=torch.utils.data.distributed.DistributedSampler(data))
    for epoch in range(3):
        train(model, loader)
# ---
def loader_of(data):
    return DataLoader(data, sampler=DistributedSampler(data))
# wrapped
loader = loader_of(data)
for epoch in range(9):
    for x in loader:
        model(x).backward()
# ---
class Prefetcher:
    def __init__(self, loader):
        self.batches = loader
# sharded
for epoch in range(9):
    for x in Prefetcher(loader):
        model(x).backward()
# ---
class Base:
    def step(self, x):
        self.model(x).mean().backward()
class Trainer(Base):
    def __init__(self, net, data):
        self.model = DDP(net)
        self.loader = DataLoader(data, sampler=DistributedSampler(data))
    def fit(self):
        for epoch in range(9):
            for x in self.loader:
                self.step(x)
