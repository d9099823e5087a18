# corpus: answer = 0
"""Horovod: one process a GPU already."""
import horovod.torch as hvd
import torch

hvd.init()
torch.cuda.set_device(hvd.local_rank())
model = torch.nn.Linear(4, 2).cuda()
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1 * hvd.size()), model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for step in range(8):
    loss = model(torch.randn(8, 4).cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
