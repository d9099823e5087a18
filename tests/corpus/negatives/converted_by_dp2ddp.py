# corpus: answer = 0
"""Has been here already: helpers imported, the wrapper is ours."""
import torch
import torch.nn as nn
from dp2ddp.templates.ddp import ExactDDP
from dp2ddp.templates.process import join_process_group

join_process_group()

model = nn.Linear(4, 2).cuda()
model = ExactDDP(model)  # was nn.DataParallel
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    loss = model(torch.randn(8, 4).cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
