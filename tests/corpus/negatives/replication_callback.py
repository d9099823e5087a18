# corpus: idioms = vendored SyncBN with DataParallelWithCallback / patch_replication_callback; nn.DataParallel
# corpus: answer = 1 DDP902:10
"""Vendored synchronized batch norm: its parts on the devices talk with each other while they run."""
import torch
import torch.nn as nn
from sync_batchnorm import SynchronizedBatchNorm2d, patch_replication_callback

model = nn.Sequential(nn.Conv2d(3, 4, 3), SynchronizedBatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
model = nn.DataParallel(model, device_ids=[0, 1])
patch_replication_callback(model)
model = model.cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    loss = model(torch.randn(8, 3, 4, 4).cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
