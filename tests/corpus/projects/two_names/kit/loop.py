import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import utils
from kit.utils import *


class Loop:
    def __init__(self, device):
        self.device = device
        self.model = nn.DataParallel(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).to(device))
        self.loader = self.make_loader()

    def make_loader(self):
        x = torch.randn(21, 4, generator=torch.Generator().manual_seed(0))
        return DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=6, shuffle=True)

    def run(self, epochs):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2 * (1 + draw()))
        for epoch in range(epochs):
            for x, y in self.loader:
                loss = F.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                log('loss %.4f' % loss.item())
            utils.log('epoch %d' % epoch)
