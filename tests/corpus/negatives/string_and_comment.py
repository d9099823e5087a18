# corpus: answer = 0
"""Trains on one GPU. (For several GPUs wrap the model in nn.DataParallel(model), see the README.)"""
import torch
import torch.nn as nn

HELP = 'checkpoints of DataParallel have "module." in front'
model = nn.Linear(4, 2).cuda()
# model = nn.DataParallel(model, device_ids=[0, 1])
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    x = torch.randn(8, 4).cuda()
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(HELP)
