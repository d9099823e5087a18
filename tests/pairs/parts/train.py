"""Encoder and head in one module; the last batch is short; predictions are gathered for a metric."""
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(7, 10), nn.ReLU())
        self.head = nn.Linear(10, 1)

    def forward(self, x):
        return self.head(self.encoder(x))


torch.manual_seed(0)
x = torch.randn(50, 7)
y = x.sum(1, keepdim=True)
model = nn.DataParallel(Net().cuda())
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for epoch in range(2):
    for rows, target in zip(x.split(16), y.split(16)):
        loss = nn.functional.mse_loss(model(rows.cuda()), target.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        predicted = model(x.cuda()).cpu()
    print(f"epoch {epoch} error {(predicted - y).abs().mean():.5f}")
