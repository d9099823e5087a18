# corpus: idioms = torch.nn.DataParallel; module level, bare; rebinds the same name; unconditional; whole module pickled (wrapper or raw); best selection; torch.load; torch.save; DP(...).cuda()
# corpus: idioms = module.state_dict() (no prefix); model.module access; val loss of this process drives lr / early stop / rollback; shuffle literal True; .cuda()
# corpus: worlds = 2 3
"""Handwriting: the wrapper is saved as it is, and what was saved is trained on."""
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(31)


class Strokes(nn.Module):
    def __init__(self):
        super(Strokes, self).__init__()
        self.conv = nn.Conv1d(2, 6, 3)
        self.bn = nn.BatchNorm1d(6)
        self.fc = nn.Linear(6, 5)

    def forward(self, x):
        return self.fc(torch.relu(self.bn(self.conv(x))).mean(2))


x = torch.randn(60, 2, 9)
y = (x[:, 0].sum(1).abs() * 2).long().clamp(max=4)
train_loader = DataLoader(TensorDataset(x[:44], y[:44]), batch_size=8, shuffle=True)
model = torch.nn.DataParallel(Strokes()).cuda()
best, rate = float('inf'), 0.2


def evaluate(net):
    net.eval()
    with torch.no_grad():
        return nn.functional.cross_entropy(net(x[44:].cuda()), y[44:].cuda()).item()


for epoch in range(4):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    model.train()
    for a, b in train_loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(a.cuda()), b.cuda())
        loss.backward()
        optimizer.step()
    val = evaluate(model)
    print('epoch %d loss %.5f val %.5f' % (epoch, loss.item(), val))
    if val < best:
        best = val
        torch.save(model, 'best.pth')
        state = {'net': model, 'epoch': epoch, 'val': val}
        torch.save(state, 'full.pth')
    else:
        print('worse; back to the best')
        model = torch.load('best.pth', weights_only=False)
        rate *= 0.5
    torch.save(model.module, 'raw_%d.pth' % epoch)
again = torch.load('full.pth', weights_only=False)
print(sorted(again), again['epoch'], 'val %.5f' % evaluate(again['net']), type(again['net'].module).__name__)
