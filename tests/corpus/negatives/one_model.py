# corpus: answer = 0
"""One model on one GPU: what most of the others change (changed.diff)."""
import torch
import torch.nn as nn

model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    loss = model(torch.randn(8, 4).cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
