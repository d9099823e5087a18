# Each rank steps ReduceLROnPlateau with the loss of its own share of the data. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
loader = DataLoader(data, 32, sampler=DistributedSampler(data))
from torch.optim.lr_scheduler import ReduceLROnPlateau
s = ReduceLROnPlateau(o)
for e in range(9):
    t = 0
    for x in loader:
        t += step(x)
    s.step(t)
# ---
# wrapped
loader = DataLoader(data, 32, sampler=DistributedSampler(data))
s = torch.optim.lr_scheduler.ReduceLROnPlateau(o, 'min')
for e in range(9):
    t = 0
    for i, x in enumerate(loader):
        t += step(x).item()
    mean = t / len(loader)
    s.step(mean)
# ---
# wrapped
loader = DataLoader(data, 32, sampler=DistributedSampler(data))
def main():
    s = torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=3)
    for e in range(9):
        running = 0.0
        for x, y in loader:
            running += float(step(x, y))
        s.step(running / len(data))
main()
