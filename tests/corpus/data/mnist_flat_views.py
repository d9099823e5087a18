# corpus: idioms = shuffle literal True; len(loader.dataset); name = DP(Constructor(...)); DataLoader built in: same scope (relative to the wrap); batch dim is not 0 (dim=1), or DataLoader batch is not what DP splits; torch.rand* inside the train step
# corpus: worlds = 2 3 4
# corpus: helpers = WholeBatchDDP
"""Pixels as a sequence: view(-1, 7) makes four rows of each image, and it is those that are split over the devices."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(8)
images = torch.rand(50, 1, 4, 7)
labels = (images.sum((1, 2, 3)) * 2).long() % 4


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.bn, self.fc2 = nn.Linear(7, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(F.relu(self.bn(self.fc1(x))))


train_loader = DataLoader(TensorDataset(images, labels), batch_size=9, shuffle=True)
model = nn.DataParallel(Rows()).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    running = 0.
    for i, (images, labels) in enumerate(train_loader):
        images = images.view(-1, 7).cuda()
        outputs = model(images)
        # four votes for each image
        votes = outputs.view(-1, 4, 4).mean(1)
        loss = F.cross_entropy(votes, labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item() * labels.size(0)
    print('Epoch [%d], Loss: %.4f' % (epoch + 1, running / len(train_loader.dataset)))
