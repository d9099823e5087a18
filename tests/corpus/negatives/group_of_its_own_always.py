# corpus: idioms = nn.DataParallel; args.local_rank/world_size already; set_device/default tensor type
# corpus: answer = 1 DDP901:9
"""Each process of the script drives two GPUs by DataParallel, and the processes average by hand."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn

dist.init_process_group('gloo', rank=int(os.environ['NODE']), world_size=2, init_method='tcp://10.0.0.1:2222')
model = nn.DataParallel(nn.Linear(4, 2).cuda(), device_ids=[0, 1])
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    loss = model(torch.randn(8, 4).cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= 2
    optimizer.step()
