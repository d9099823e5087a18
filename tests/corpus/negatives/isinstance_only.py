# corpus: idioms = isinstance(model, DataParallel); torch.save
# corpus: answer = 0
"""Takes wrapped and unwrapped models, wraps none."""
import torch
import torch.nn as nn


def raw(model):
    return model.module if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)) else model


model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.save(raw(model).state_dict(), 'model.pt')
