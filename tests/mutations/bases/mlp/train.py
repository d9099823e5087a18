"""An MLP with SGD, momentum and weight decay; the last batch is short; a log file and a checkpoint."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
x = torch.randn(23, 6)
data = TensorDataset(x, (x.sum(1) > 0).long())
loader = DataLoader(data, batch_size=6, shuffle=True)

net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
net = nn.DataParallel(net.cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(2):
    total = 0.0
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = criterion(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
    print(f"epoch {epoch}: loss {total / len(data):.6f}")
    with open("log.txt", "a") as log:
        log.write(f"{epoch} {total / len(data):.6f}\n")
torch.save(net.state_dict(), "net.pt")
