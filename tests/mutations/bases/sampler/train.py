"""Its own generator shuffles each epoch anew; Nesterov's momentum; a step schedule; no normalisation over rows."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

torch.manual_seed(7)
data = TensorDataset(torch.randn(24, 6), torch.randn(24, 2))
generator = torch.Generator()
loader = DataLoader(data, batch_size=6, sampler=RandomSampler(data, generator=generator))
net = nn.DataParallel(nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2)).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

for epoch in range(3):
    generator.manual_seed(epoch)
    for x, y in loader:
        loss = F.mse_loss(net(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
print("done")
