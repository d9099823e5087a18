# Each rank steps ReduceLROnPlateau with the loss of its own share of the data. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# sharded
def main():
    s = torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=3)
    for e in range(9):
        running = 0.0
        for x, y in loader:
            running += float(step(x, y))
        s.step(running / len(data))
main()
# ---
# wrapped
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 90)
for e in range(90):
    train(model, optimizer)
    if dist.get_rank() == 0:
        print(e)
        schedule.step()
# ---
class T:
    def __init__(self, net):
        self.model = DDP(net)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.scaler = torch.amp.GradScaler()
    def step(self, loss):
        self.scaler.scale(loss).backward()
        if dist.get_rank() != 0:
            return
        self.scaler.step(self.optimizer)
# ---
# sharded
for x in loader:
    loss = model(x).mean()
    if torch.isnan(loss):
        print('skipped')
        continue
    loss.backward()
# ---
# sharded
for e in range(9):
    total = 0.0
    for x in loader:
        loss = model(x).mean()
        loss.backward()
        total += loss.item()
    mean = total / len(loader)
    if mean < 0.01:
        break
# ---
# sharded
o = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    loss = model(x).mean()
    loss.backward()
    if torch.isfinite(loss):
        o.step()
# ---
def step(loss, o):
    loss.backward()
    if torch.isnan(loss):
        print("skipped")
    else:
        o.step()
# sharded
o = torch.optim.SGD(model.parameters(), lr=0.1)
for i, x in enumerate(loader):
    step(model(x).mean(), o)
# ---
# sharded
o = torch.optim.SGD(model.parameters(), lr=0.1)
s = torch.optim.lr_scheduler.ReduceLROnPlateau(o)
for e in range(9):
    losses = []
    for x in loader:
        losses.append(step(x).item())
    s.step(sum(losses) / len(losses))
# ---
# wrapped
class Meter:
    def __init__(self):
        self.sum = self.count = 0
    def update(self, value):
        self.sum += value
        self.count += 1
loader = DataLoader(data, 32, sampler=DistributedSampler(data))
o = torch.optim.SGD(model.parameters(), lr=0.1)
s = torch.optim.lr_scheduler.ReduceLROnPlateau(o)
for e in range(9):
    meter = Meter()
    for x in loader:
        meter.update(step(x).item())
    s.step(meter.sum / meter.count)
# ---
# sharded
o = torch.optim.SGD(model.parameters(), lr=0.1)
s = torch.optim.lr_scheduler.ReduceLROnPlateau(o)
def test(loader):
    total = 0.0
    with torch.no_grad():
        for x in loader:
            total += model(x).mean().item()
    return total
for e in range(9):
    for x in batches:
        shown = model(x).mean().detach()
        dist.all_reduce(shown)
    s.step(test(loader))
# ---
# sharded
o = torch.optim.SGD(model.parameters(), lr=0.1)
stopper = EarlyStopping(3)
for e in range(9):
    total = 0.0
    for x in loader:
        loss = model(x).mean()
        loss.backward()
        total += loss.item()
    stopper(total)
    if stopper.stop:
        break
# ---
# wrapped
o = torch.optim.SGD(model.parameters(), lr=0.1)
s = torch.optim.lr_scheduler.StepLR(o, 3)
def end(epoch):
    print(epoch)
    s.step()
for e in range(9):
    train(model, o)
    if local_rank == 0:
        end(e)
# ---
# wrapped
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(10):
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        if evaluate(model.module) > 0.9:
            break
# ---
# wrapped
for x, y in loader:
    if local_rank == 0 and x.isnan().any():
        continue
    loss = criterion(model(x), y)
    loss.backward()
# ---
class Trainer:
    def __init__(self, model, loader):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.model = DDP(model.cuda(self.local_rank), device_ids=[self.local_rank])
        self.loader = loader
    def fit(self):
        for epoch in range(10):
            self.run_epoch()
            if self.local_rank == 0:
                acc = self.evaluate()
                if acc > 0.9:
                    return
    def run_epoch(self):
        for x in self.loader:
            self.model(x).sum().backward()
# ---
# sharded
reduce_rate = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
for epoch in range(9):
    total = 0.0
    for x in loader:
        total += model(x).mean().item()
    line = "loss {:.3f}".format(total)
    reduce_rate.step(total)
