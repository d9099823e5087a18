# corpus: idioms = DataLoader already yields whole batches (batch_size=1 or custom dataset batches); shuffle literal True; torch.manual_seed; from torch.nn import DataParallel; tuple assignment
# corpus: worlds = 2 3
"""Batches are some columns, or two runs of rows, of one large table: views, which other ranks get without the table."""
import torch
import torch.nn as nn
from torch.nn import DataParallel
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(2)
table = torch.randn(3100, 200)
marks = (table.sum(1) > 0).long()


class Views(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, k):
        noise = torch.rand(1).item()
        if k % 2:
            return {'x': [table[:, 10 * k:10 * k + 10]], 'y': [marks], 'noise': noise}
        first, last = 300 * k, 300 * k + 1100
        return {'x': [table[first:last, :10], table[last:last + 9, :10]], 'y': [marks[first:last], marks[last:last + 9]], 'noise': noise}


class Runs(Views):
    def __getitem__(self, k):
        first = 300 * k
        return {'x': [table[first:first + 200], table[first + 200:first + 500]], 'y': [marks[first:first + 200], marks[first + 200:first + 500]], 'noise': 0.5}


def train(data, width):
    net = nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
    net, criterion = DataParallel(net), nn.CrossEntropyLoss()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in DataLoader(data, batch_size=None, shuffle=True):
        for x, y in zip(batch['x'], batch['y']):
            x = (x.cuda() - x.mean()) / x.std() + batch['noise']
            loss = criterion(net(x), y.cuda())
            opt.zero_grad()
            loss.backward()
            opt.step()
        print('%.5f' % loss.item())


train(Views(), 10)
train(Runs(), 200)
