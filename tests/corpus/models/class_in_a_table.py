# corpus: idioms = yaml/yacs/json config
"""The wrapper is chosen from a table."""
import torch
import torch.nn as nn

WRAPPERS = {'none': lambda m: m, 'dp': nn.DataParallel}
config = {'parallel': 'dp', 'lr': 0.1}
model = WRAPPERS[config['parallel']](nn.Linear(4, 2).cuda())
optimizer = torch.optim.SGD(model.parameters(), config['lr'])
for step in range(8):
    x = torch.randn(8, 4).cuda()
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
