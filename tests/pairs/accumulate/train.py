"""Batches of 32, one forward each."""
import torch
import torch.nn as nn

torch.manual_seed(0)
x, y = torch.randn(128, 6), torch.randint(0, 3, (128,))
model = nn.DataParallel(nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 3)).cuda())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(2):
    for rows, target in zip(x.split(32), y.split(32)):
        loss = nn.functional.cross_entropy(model(rows.cuda()), target.cuda())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
torch.save(model.module.state_dict(), "model.pt")
