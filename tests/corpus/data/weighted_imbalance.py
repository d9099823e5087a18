# corpus: idioms = sampler=; random_split/subset; shuffle literal True; drop_last; len(loader.dataset); torch.manual_seed; cudnn flags; correct/total counters; best selection; DataLoader built in: same scope (relative to the wrap)
# corpus: helpers = WholeBatchDDP
"""Rare disease screening: the positives are drawn more often."""
import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler, random_split

torch.manual_seed(7)
cudnn.benchmark = True
cudnn.deterministic = False

device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
x = torch.randn(150, 12)
y = ((x[:, 0] + 0.5 * x[:, 1] ** 2 > 1.6)).long()
train_set, test_set = random_split(TensorDataset(x, y), [110, 40])

train_y = y[train_set.indices]
class_count = torch.bincount(train_y, minlength=2).float()
weights = 1. / class_count[train_y]
sampler = WeightedRandomSampler(weights, num_samples=len(train_y), replacement=True)
train_loader = DataLoader(train_set, batch_size=16, sampler=sampler)
test_loader = DataLoader(test_set, batch_size=25, shuffle=False)
print('positives %d of %d' % (int(train_y.sum()), len(train_loader.dataset)))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 24)
        self.bn1 = nn.BatchNorm1d(24)
        self.fc2 = nn.Linear(24, 2)

    def forward(self, x):
        return self.fc2(F.dropout(F.relu(self.bn1(self.fc1(x))), 0.2, self.training))


model = MLP().to(device)
if torch.cuda.device_count() > 1:
    print("Let's use", torch.cuda.device_count(), "GPUs!")
    model = nn.DataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


def train(epoch):
    model.train()
    positives = 0
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.cross_entropy(output, target)
        loss.backward()
        optimizer.step()
        positives += target.sum().item()
        if batch_idx % 3 == 0:
            print('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}'.format(
                epoch, batch_idx * len(data), len(train_loader.dataset),
                100. * batch_idx / len(train_loader), loss.item()))
    print('drawn positives', positives)


def test():
    model.eval()
    test_loss = correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.cross_entropy(output, target, reduction='sum').item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    test_loss /= len(test_loader.dataset)
    print('Test set: Average loss: {:.4f}, Accuracy: {}/{}'.format(test_loss, correct, len(test_loader.dataset)))
    return correct


best = 0
for epoch in range(1, 4):
    train(epoch)
    acc = test()
    if acc > best:
        best = acc
        torch.save(model.state_dict(), 'screening_best.pt')
