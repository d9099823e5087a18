"""The model returns its loss, to keep the outputs off the first GPU; the script takes the mean over GPUs."""

import csv

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from ddp_helpers import WholeBatchDDP, init_distributed, open_on_rank0, save_on_rank0

init_distributed()

torch.manual_seed(3)
EPOCHS = 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        return self.head(self.body(x))


class NetWithLoss(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, y):
        logits = self.net(x)
        loss = F.cross_entropy(logits, y)
        correct = (logits.argmax(1) == y).sum()
        return loss, correct


def make_data(rows):
    x = torch.randn(rows, 20)
    y = (x[:, :4] * 2 + x[:, 4:8]).argmax(1)
    return TensorDataset(x, y)


def main():
    train_set = make_data(180)
    loader = DataLoader(train_set, batch_size=32, shuffle=True)
    model = WholeBatchDDP(NetWithLoss(Net())).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    with open_on_rank0("history.csv", "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["epoch", "loss", "accuracy"])
        for epoch in range(EPOCHS):
            running = 0.0
            hits = 0
            for x, y in loader:
                loss, correct = model(x.cuda(), y.cuda())
                loss = loss.mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                running += loss.item() * len(x)
                hits += correct.sum().item()
            row = [epoch, running / len(train_set), hits / len(train_set)]
            writer.writerow(row)
            print("epoch %d  loss %.5f  accuracy %.3f" % tuple(row))

    save_on_rank0(model.module.net.state_dict(), "net.pt")


if __name__ == "__main__":
    main()
