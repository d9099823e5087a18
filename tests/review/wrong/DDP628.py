# Every rank trains on all of the data. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
def train(batches):
    for i, x in enumerate(batches):
        loss = model(x)
        loss.backward()
for epoch in range(3):
    train(DataLoader(data, shuffle=True))
# ---
class T:
    def __init__(self):
        dist.init_process_group('nccl')
        self.model = DDP(net)
        self.loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=2)
    def run(self):
        for x, y in self.loader:
            self.model(x).sum().backward()
# ---
# wrapped
sampler = DistributedSampler(data)
loader = DataLoader(data, 32, shuffle=True)
for epoch in range(9):
    sampler.set_epoch(epoch)
    for x in loader:
        model(x).backward()
# ---
# wrapped
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4)
for epoch in range(10):
    sampler.set_epoch(epoch)
    for x, y in loader:
        model(x).backward()
# ---
def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    train_dataset = load()
    train_sampler = DistributedSampler(train_dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank())
    train_loader = DataLoader(dataset=train_dataset, batch_size=32, shuffle=False, num_workers=4, pin_memory=True)
    model = DDP(net.cuda())
    for epoch in range(10):
        for i, (x, y) in enumerate(train_loader):
            loss = criterion(model(x), y)
            loss.backward()
if __name__ == "__main__":
    main()
