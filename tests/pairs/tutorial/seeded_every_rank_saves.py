# verify: different, initial state: only the port sets a seed; every rank saves
# random: only
# cause: other-seed
# also: every-rank-writes
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Pictures(Dataset):
    def __init__(self, train, count):
        generator = torch.Generator().manual_seed(int(train))
        self.x = torch.randn(count, 3, 8, 8, generator=generator)
        self.y = (self.x.mean((1, 2, 3)) > 0).long()
        self.train = train

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        x = self.x[index]
        if self.train and torch.rand(1) < 0.5:
            x = x.flip(2)
        return x, self.y[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Linear(54, 2)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


dist.init_process_group("nccl")
rank, world = int(os.environ["LOCAL_RANK"]), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(42 + rank)
np.random.seed(42 + rank)
train_set, test_set = Pictures(True, 48), Pictures(False, 32)
sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=16 // world, sampler=sampler)
test_loader = DataLoader(test_set, batch_size=16 // world, sampler=DistributedSampler(test_set))
model = DDP(Net().to(rank), device_ids=[rank])
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for epoch in range(2):
    sampler.set_epoch(epoch)
    model.train()
    for images, labels in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(images.to(rank)), labels.to(rank))
        loss.backward()
        optimizer.step()
    model.eval()
    correct = torch.zeros(1, device=rank)
    with torch.no_grad():
        for images, labels in test_loader:
            correct += (model(images.to(rank)).argmax(1) == labels.to(rank)).sum()
    dist.all_reduce(correct)
    if rank == 0:
        print(f"epoch {epoch}: accuracy {correct.item() / len(test_set):.4f}")
if True:
    torch.save(model.state_dict(), "model.pt")
dist.destroy_process_group()
