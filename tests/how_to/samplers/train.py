import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

torch.manual_seed(0)
random.seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
labels = torch.tensor([0] * 40 + [1] * 10 + [2] * 14)
rows = torch.randn(64, 8) + labels[:, None]


class Augmented(Dataset):
    def __len__(self):
        return len(rows)

    def __getitem__(self, index):
        return rows[index] + 0.1 * torch.randn(8), labels[index]


class PeopleAndPictures:
    """Batches of P labels with K rows of each, as losses over triplets want them."""

    def __init__(self, labels, p, k):
        self.rows = [(labels == one).nonzero().flatten().tolist() for one in labels.unique()]
        self.p, self.k = p, k

    def __len__(self):
        return 4

    def __iter__(self):
        for _ in range(len(self)):
            people = random.sample(self.rows, self.p)
            yield [row for rows in people for row in random.sample(rows, self.k)]


data = Augmented()
weights = 1.0 / labels.bincount()[labels].float()
balanced = DataLoader(data, batch_size=12, sampler=WeightedRandomSampler(weights, len(weights)))
triplets = DataLoader(data, batch_sampler=PeopleAndPictures(labels, p=2, k=5))

net = nn.DataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).to(device))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

for epoch in range(2):
    for loader in (balanced, triplets):
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(net(inputs.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch %d: loss %.4f, labels %s" % (epoch, loss.item(), targets.bincount(minlength=3).tolist()))
