# corpus: idioms = framework loop (ignite/torchnet Engine)
# corpus: answer = 1 DDP902:8
"""The wrap is inside of another package's helper."""
import torch
import torch.nn as nn
from torchpack.parallel import make_data_parallel

model = make_data_parallel(nn.Linear(4, 2).cuda())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    x = torch.randn(8, 4).cuda()
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
