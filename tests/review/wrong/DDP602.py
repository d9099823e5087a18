# An accuracy or a loss is counted over one rank's share of the data, and never brought together. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))
correct = 0
with torch.no_grad():
    for x, y in loader:
        correct += (model(x).argmax(1) == y).sum().item()
print(correct / len(data))
# ---
# wrapped
def validate(model, batches):
    total = 0.0
    with torch.inference_mode():
        for x, y in batches:
            total += loss_of(model(x), y).item()
    return total / len(batches)
val_sampler = DistributedSampler(val)
val_loader = DataLoader(val, 8, sampler=val_sampler)
validate(model, val_loader)
# ---
# wrapped
class T:
    def __init__(self):
        self.val = DataLoader(val, sampler=DistributedSampler(val))
    @torch.no_grad()
    def test(self):
        hits = 0
        for x, y in self.val:
            hits += model(x).eq(y).sum()
        return hits
# ---
# wrapped
def mean_over_ranks(t):
    dist.all_reduce(t)
    return t / dist.get_world_size()
def test(loader):
    hits = seen = 0
    with torch.no_grad():
        for x, y in loader:
            hits += model(x).argmax(1).eq(y).sum().item()
            seen += len(y)
    return hits / seen
for x in batches:
    shown = mean_over_ranks(model(x).mean().detach())
accuracy = test(DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=False)))
