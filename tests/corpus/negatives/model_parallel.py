# corpus: answer = 0
"""A model whose halves live on two GPUs; no DataParallel."""
import torch
import torch.nn as nn


class TwoHalves(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.LSTM(8, 16, batch_first=True).to('cuda:0')
        self.decoder = nn.Linear(16, 8).to('cuda:1')

    def forward(self, x):
        h, _ = self.encoder(x.to('cuda:0'))
        return self.decoder(h.to('cuda:1'))


model = TwoHalves()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(10):
    x = torch.randn(6, 5, 8)
    loss = (model(x) - x.to('cuda:1')).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
