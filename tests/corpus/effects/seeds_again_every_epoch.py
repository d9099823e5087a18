# corpus: idioms = nn.DataParallel; function main/train/run; rebinds the same name; unconditional; torch.manual_seed; np.random/random seed; torch.rand* inside the train step; correct/total counters; global statement; from x import *
# corpus: idioms = DP(...).cuda(); shuffle literal True; .item(); __name__ guard; Variable()
# corpus: worlds = 2 3 4
"""Memory network; the author sets the seed again before each epoch "to be reproducible"."""
from math import *
import random

import numpy as np
import torch
import torch.nn as nn
from torch.autograd import Variable
from torch.utils.data import DataLoader, TensorDataset

seed = 1
calls = 0


def set_seed(seed):
    global calls
    calls += 1
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


class Memory(nn.Module):
    def __init__(self):
        super(Memory, self).__init__()
        self.query = nn.Linear(8, 6)
        self.keys = nn.Parameter(torch.randn(10, 6) / sqrt(6))
        self.values = nn.Linear(10, 4)

    def forward(self, x):
        attention = torch.softmax(nn.functional.dropout(self.query(x), 0.3, self.training) @ self.keys.t(), 1)
        return self.values(nn.functional.dropout(attention, 0.2, self.training))


def main():
    set_seed(seed)
    x = torch.randn(45, 8)
    y = (x[:, :2].prod(1) > 0).long() + 2 * (x[:, 2] > 0).long()
    model = nn.DataParallel(Memory()).cuda()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for epoch in range(3):
        set_seed(seed)
        loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
        noise_level = 0.1 * random.random()
        correct = total = 0
        for inputs, targets in loader:
            inputs = inputs + noise_level * torch.randn(inputs.size())
            inputs, targets = Variable(inputs.cuda()), Variable(targets.cuda())
            outputs = model(inputs)
            loss = nn.functional.cross_entropy(outputs, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += outputs.data.max(1)[1].eq(targets.data).sum().item()
            total += targets.size(0)
        set_seed(seed)
        with torch.no_grad():
            probe = model(x[:6].cuda())
        print('epoch %d loss %.5f acc %d/%d probe %.5f seeds set %d' % (epoch, loss.data.item(), correct, total, probe.sum().item(), calls))


if __name__ == '__main__':
    main()
