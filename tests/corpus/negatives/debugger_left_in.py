# corpus: idioms = input() prompt / pdb; nn.DataParallel
# corpus: answer = 1 DDP904:12
"""Somebody forgot the debugger in the loop."""
import pdb
import torch
import torch.nn as nn

model = nn.DataParallel(nn.Linear(4, 2)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    loss = model(torch.randn(8, 4).cuda()).pow(2).mean()
    pdb.set_trace()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
