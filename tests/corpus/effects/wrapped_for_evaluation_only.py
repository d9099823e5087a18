# corpus: idioms = nn.DataParallel; new name, raw model kept under another name; wrapped model is frozen/eval-only (teacher, EMA teacher, target net)
"""Trains the raw model on one GPU; DataParallel only for the evaluation."""
import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
parallel = nn.DataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(3):
    model.train()
    for step in range(4):
        x, y = torch.randn(8, 4).cuda(), torch.randint(0, 2, (8,)).cuda()
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    parallel.eval()
    with torch.no_grad():
        out = parallel(torch.randn(30, 4).cuda())
    print(epoch, 'mean %.5f' % out.mean().item())
