# corpus: idioms = nn.DataParallel; multiprocessing/threads/queues for data; subprocess/os.system
# corpus: answer = 1 DDP906:10 DDP906:11 DDP906:20
"""Forks a watcher that kills the training when it hangs, and leaves by os._exit."""
import os
import subprocess
import torch
import torch.nn as nn

watcher = subprocess.Popen(['nvidia-smi', 'dmon'])
if os.fork() == 0:
    os._exit(0)
model = nn.DataParallel(nn.Linear(4, 2)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    loss = model(torch.randn(8, 4).cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
watcher.kill()
os._exit(0)
