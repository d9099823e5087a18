# corpus: idioms = nn.DataParallel
# corpus: answer = 0
"""The wrap stands in a branch that is switched off for good."""
import torch
import torch.nn as nn

model = nn.Linear(4, 2).cuda()
if False:
    model = nn.DataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    loss = model(torch.randn(8, 4).cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
