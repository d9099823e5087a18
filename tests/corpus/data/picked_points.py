# corpus: idioms = order, crops or lengths drawn from np.random / random in dataset, sampler or loop; np.random/random seed; torch.manual_seed; shuffle literal True; nn.DataParallel; class method (other)
# corpus: worlds = 2 3
"""Point clouds: each sample picks points and moves them in place, and pairs are put into lists of its own."""
import copy

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

np.random.seed(3)
torch.manual_seed(3)


class Clouds(Dataset):
    def __init__(self, clouds, labels):
        self.data, self.labels, self.reverse = clouds, labels, 0.5

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        points = self.data[index]
        if len(points) < 12:
            picked = np.random.choice(len(points), 12, replace=True)
        else:
            picked = np.random.choice(len(points), 12, replace=False)
        points = points[picked, :]
        points[:, 0] = points[:, 0] - points[:, 0].mean()
        turns = self.reverse
        if np.random.random() < turns / 2 + 0.25:
            points = points[::-1]
        views = []
        for scale in (0.5, 1.0):
            views.append(copy.deepcopy(points))
            views[-1] *= scale
        order = list(range(2))
        np.random.shuffle(order)
        return torch.from_numpy(np.concatenate([views[k] for k in order]).astype('float32')), self.labels[index]


class Trainer:
    def __init__(self, net, loader):
        self.data = loader
        self.net, self.opt = net, torch.optim.SGD(net.parameters(), lr=0.1)

    def epoch(self):
        total = 0.0
        for points, label in self.data:
            out = self.net(points.cuda())
            loss = nn.functional.cross_entropy(out, label.cuda())
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item() * len(label)
        return total


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(3, 16), nn.ReLU())
        self.all = nn.Linear(16, 3)

    def forward(self, points):
        return self.all(self.each(points).max(1)[0])


made = [np.random.randn(9 + i % 7, 3) for i in range(23)]
clouds = Clouds(made, [i % 3 for i in range(23)])
trainer = Trainer(nn.DataParallel(Net()).cuda(), DataLoader(clouds, batch_size=6, shuffle=True))
for epoch in range(2):
    print('epoch %d: %.5f' % (epoch, trainer.epoch()))
