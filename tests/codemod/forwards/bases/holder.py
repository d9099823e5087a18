import array, bisect, collections, contextlib, functools, heapq, itertools, operator, queue, random, threading
from collections import Counter, OrderedDict, defaultdict, deque
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
random.seed(0)
np.random.seed(0)
class Holder:
    def __init__(self):
        self.n = 0
        self.items = []
    def step(self):
        self.n += 1
        return self.n
    def keep(self, one):
        self.items.append(one)
    def __call__(self, x):
        self.n += 1
        return x / self.n

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
    def forward(self, x):
        scale = 1.0
        return self.fc(x) * scale


net = nn.DataParallel(Net()).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = TensorDataset(torch.randn(22, 4), torch.randn(22, 3))
for x, y in DataLoader(data, batch_size=6):
    loss = ((net(x.cuda()) - y.cuda()) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.6f}")
