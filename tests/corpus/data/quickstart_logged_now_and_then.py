# corpus: idioms = shuffle literal True; len(loader.dataset); DataLoader built in: same scope (relative to the wrap); torch.manual_seed; .item(); unconditional
# corpus: worlds = 2 3 4
# corpus: helpers = WholeBatchDDP
"""The quickstart of PyTorch's tutorials, with DataParallel: the size of the batch is logged now and then."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
device = "cuda" if torch.cuda.device_count() >= 1 else "cpu"


def data(rows):
    x = torch.rand(rows, 1, 6, 6)
    return TensorDataset(x, (x.sum(dim=(1, 2, 3)) > 18).long())


train_dataloader = DataLoader(data(46), batch_size=8, shuffle=True)
test_dataloader = DataLoader(data(21), batch_size=8)


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x):
        return self.linear_relu_stack(self.flatten(x))


model = nn.DataParallel(NeuralNetwork().to(device))
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-1)


def train(dataloader, model, loss_fn, optimizer):
    size = len(dataloader.dataset)
    model.train()
    for batch, (X, y) in enumerate(dataloader):
        X, y = X.to(device), y.to(device)
        pred = model(X)
        loss = loss_fn(pred, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if batch % 2 == 1:
            loss, current = loss.item(), (batch + 1) * len(X)
            print(f"loss: {loss:>7f}  [{current:>5d}/{size:>5d}] mean {X.mean():.6f}")


def test(dataloader, model, loss_fn):
    size = len(dataloader.dataset)
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for X, y in dataloader:
            X, y = X.to(device), y.to(device)
            pred = model(X)
            test_loss += loss_fn(pred, y).item()
            correct += (pred.argmax(1) == y).type(torch.float).sum().item()
    print(f"Accuracy: {100 * correct / size:>0.1f}%, Avg loss: {test_loss / len(dataloader):>8f}")


for t in range(2):
    print(f"Epoch {t + 1}")
    train(train_dataloader, model, loss_fn, optimizer)
    test(test_dataloader, model, loss_fn)
torch.save(model.state_dict(), "model.pth")
