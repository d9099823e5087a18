"""Random flips and noise in the data set, which worker processes draw."""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(11)
images = torch.randn(24, 1, 5, 5)
labels = torch.randint(2, (24,))


class Augmented(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        image = images[i] + 0.1 * torch.randn(1, 5, 5)
        return (image.flip(2) if random.random() < 0.5 else image), labels[i]


loader = DataLoader(Augmented(), batch_size=6, num_workers=2)
net = nn.DataParallel(nn.Sequential(nn.Flatten(), nn.Linear(25, 16), nn.ReLU(), nn.Linear(16, 2)).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in loader:
        loss = F.cross_entropy(net(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
