"""The loss is computed inside the wrapped forward, gathered, then averaged."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from dp2ddp.helpers import WholeBatchDDP, count_ranks, init_distributed


class Rows(Dataset):
    def __init__(self, count):
        self.x = torch.randn(count, 20)
        self.y = torch.randint(0, 3, (count,))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(20, 3)

    def forward(self, x, y):
        logits = self.net(x)
        return F.cross_entropy(logits, y), logits.argmax(1)


def evaluate(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            _, guess = model(x, y)
            right += (guess.cpu() == y).sum().item()
    return right / len(loader.dataset)


init_distributed()

torch.manual_seed(0)
train = DataLoader(Rows(100), batch_size=16, shuffle=True)
test = DataLoader(Rows(30), batch_size=16)
model = WholeBatchDDP(WithLoss(), device_ids=range(3)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    model.train()
    for i, (x, y) in enumerate(train):
        loss, _ = model(x, y)
        loss = loss.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: accuracy {evaluate(model, test):.3f} on {count_ranks()} GPUs")
