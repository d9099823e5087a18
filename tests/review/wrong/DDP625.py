# `no_sync` stands around the backward pass only, and does nothing there. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
for x in batches:
    loss = model(x)
    with model.no_sync():
        loss.backward()
# ---
# wrapped
for i, x in enumerate(batches):
    loss = criterion(model(x), y) / 4
    if i % 4:
        with model.no_sync():
            scaler.scale(loss).backward()
    else:
        scaler.scale(loss).backward()
# ---
class T:
    def __init__(self, net):
        self.model = DDP(net)
    def step(self, x):
        loss = self.model(x).sum()
        with self.model.no_sync():
            loss.backward()
# ---
from contextlib import nullcontext
# wrapped
for i, (x, y) in enumerate(batches):
    loss = criterion(model(x), y)
    with nullcontext() if i % 4 == 3 else model.no_sync():
        loss.backward()
