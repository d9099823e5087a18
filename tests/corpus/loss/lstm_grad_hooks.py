# corpus: idioms = grads or params edited between backward and step (rescale, binarise, AWP, ortho, accumulate EMA); mean over a data-dependent count - full batch level (after gather); manual adjust_learning_rate; computed inside the wrapped forward, gathered, then .sum()
# corpus: worlds = 2 3
"""Frame-wise speech labels with an LSTM: gradients of the weights are clamped by hooks while backward runs (Graves' recipe)."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument('--lr', type=float, default=0.1)
parser.add_argument('--epochs', type=int, default=3)
parser.add_argument('--bs', type=int, default=12)
parser.add_argument('--grad-clamp', type=float, default=0.02)
args = parser.parse_args()
torch.manual_seed(41)


class Tagger(nn.Module):
    def __init__(self, dim=5, hidden=10, classes=4):
        super().__init__()
        self.rnn = nn.LSTM(dim, hidden, batch_first=True)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x, y, mask):
        h, _ = self.rnn(x)
        nll = F.cross_entropy(self.out(h).transpose(1, 2), y, reduction='none') * mask
        return nll.sum(), mask.sum()


x = torch.randn(44, 7, 5)
y = (x.cumsum(1)[:, :, 0] > 0).long() + (x[:, :, 1] > 0).long() + (x[:, :, 2] > 1).long()
mask = (torch.arange(7)[None] < torch.randint(1, 8, (44, 1))).float()
loader = DataLoader(TensorDataset(x, y, mask), batch_size=args.bs, shuffle=True)
net = Tagger().cuda()
for p in net.parameters():
    p.register_hook(lambda g: torch.clamp(g, -args.grad_clamp, args.grad_clamp))
net = nn.DataParallel(net)
optimizer = torch.optim.RMSprop(net.parameters(), lr=args.lr * 0.1, momentum=0.9)

for epoch in range(args.epochs):
    for group in optimizer.param_groups:
        group['lr'] = args.lr * 0.1 / (1 + epoch)
    frames, total = 0., 0.
    for i, (feats, labels, m) in enumerate(loader):
        optimizer.zero_grad()
        nll, count = net(feats.cuda(), labels.cuda(), m.cuda())
        loss = nll.sum() / count.sum()              # over all frames of all GPUs
        loss.backward()
        optimizer.step()
        clamped = sum((p.grad.abs() >= args.grad_clamp * 0.999).sum().item() for p in net.parameters())
        total, frames = total + nll.sum().item(), frames + count.sum().item()
        print('epoch %d batch %d loss %.6f clamped %d frames %d' % (epoch, i, loss.item(), clamped, count.sum().item()))
    print('==> epoch %d nll per frame %.6f' % (epoch, total / frames))
torch.save(net.module.state_dict(), 'tagger.pth')
