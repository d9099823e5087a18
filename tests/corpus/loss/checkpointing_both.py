# corpus: idioms = parameters without gradient on a step (optional heads, toggled requires_grad, unused branches); torch.rand* inside the train step
# corpus: worlds = 2 3
"""Memory-saving nets: reentrant and other checkpoints inside the forward, and the whole wrapped model inside one."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint as cp
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument('--efficient', type=int, default=1)
parser.add_argument('--epochs', type=int, default=2)
args = parser.parse_args()
torch.manual_seed(17)


class DenseLayer(nn.Module):
    def __init__(self, i, growth, drop):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm1d(i), nn.Linear(i, growth)
        self.drop = drop

    def bn_function(self, *inputs):
        return self.conv(F.relu(self.norm(torch.cat(inputs, 1))))

    def forward(self, *prev):
        if args.efficient and any(f.requires_grad for f in prev):
            out = cp.checkpoint(self.bn_function, *prev, use_reentrant=True)
        else:
            out = self.bn_function(*prev)
        return F.dropout(out, self.drop, self.training)


class Center(nn.Module):
    """A running mean that is a frozen weight: the second run of a checkpoint writes it again, in backward."""

    def __init__(self, width):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(1, width), requires_grad=False)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(x.mean(0, keepdim=True), 0.1)
        return x - self.mean.clone()


class DenseNet(nn.Module):
    def __init__(self, width=8, growth=4, layers=3):
        super().__init__()
        self.stem = nn.Linear(6, width)
        self.layers = nn.ModuleList([DenseLayer(width + k * growth, growth, 0.2) for k in range(layers)])
        self.mlp = nn.Sequential(nn.Linear(width + layers * growth, 12), Center(12), nn.Dropout(0.1), nn.GELU())
        self.classifier = nn.Linear(12, 3)

    def forward(self, x):
        feats = [self.stem(x)]
        for layer in self.layers:
            feats.append(layer(*feats))
        h = torch.cat(feats, 1)
        h = cp.checkpoint(self.mlp, h, use_reentrant=False) if self.training else self.mlp(h)
        return self.classifier(h)


model = nn.DataParallel(DenseNet().cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
x = torch.randn(44, 6)
y = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=12, shuffle=True)

for epoch in range(args.epochs):
    model.train()
    for i, (input, target) in enumerate(loader):
        input, target = input.cuda(), target.cuda()
        output = model(input)
        loss = F.cross_entropy(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print('Epoch [%d] Iter [%d/%d] Loss %.6f Error %.3f' % (epoch, i, len(loader), loss.item(), (output.argmax(1) != target).float().mean().item()))
    # a consistency step in which the wrapped model itself is not kept but run again in backward
    model.eval()
    noisy = (x[:10] + 0.1 * torch.randn(10, 6)).cuda().requires_grad_()
    again = cp.checkpoint(model, noisy, use_reentrant=epoch % 2 == 0)
    with torch.no_grad():
        clean = F.softmax(model(x[:10].cuda()), 1)
    loss = F.kl_div(F.log_softmax(again, 1), clean, reduction='batchmean')
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print('consistency %.6f, input gradient %.6f' % (loss.item(), noisy.grad.abs().sum().item()))
torch.save(model.module.state_dict(), 'dense.pth')
