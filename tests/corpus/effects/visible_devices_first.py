# corpus: idioms = nn.DataParallel; module level, bare; name = DP(Constructor(...)); device_ids literal/comprehension list; output_device=; CUDA_VISIBLE_DEVICES set in the script; new name, raw model kept under another name; set_device/default tensor type
# corpus: idioms = unconditional; global statement; .cuda(arg); permutes the batch on the spot (mixup/cutmix randperm); shuffle literal True; torch.manual_seed; torch.rand* inside the train step; EMA / second copy of weights
"""CUDA_VISIBLE_DEVICES stands above the import of torch, as old scripts have it."""
import os
os.environ['CUDA_DEVICE_ORDER'] = 'PCI_BUS_ID'
os.environ['CUDA_VISIBLE_DEVICES'] = '0,1'
gpu_ids = [0, 1]

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.cuda.set_device(gpu_ids[0])
torch.manual_seed(77)
step = 0


class SoundNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 5, 5, stride=2)
        self.bn = nn.BatchNorm1d(5)
        self.fc = nn.Linear(5, 4)

    def forward(self, wave):
        h = F.relu(self.bn(self.conv(wave)))
        h = F.dropout(h.mean(2), 0.3, self.training)
        return self.fc(h)


waves = torch.randn(52, 1, 24, generator=torch.Generator().manual_seed(5))
labels = (waves[:, 0, :4].abs().argmax(1))
loader = DataLoader(TensorDataset(waves, labels), batch_size=8, shuffle=True)

net = SoundNet().cuda(gpu_ids[0])
ema = SoundNet().cuda(gpu_ids[0])
ema.load_state_dict(net.state_dict())
for p in ema.parameters():
    p.detach_()
model = nn.DataParallel(net, device_ids=[0, 1], output_device=0)
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)


def update_ema(decay=0.9):
    global step
    step += 1
    decay = min(1 - 1 / (step + 1), decay)
    for e, p in zip(ema.parameters(), net.parameters()):
        e.data.mul_(decay).add_(p.data, alpha=1 - decay)
    for e, b in zip(ema.buffers(), net.buffers()):
        e.copy_(b)


def mixup(x, y):
    lam = float(torch.distributions.Beta(0.4, 0.4).sample())
    index = torch.randperm(x.size(0)).cuda(gpu_ids[0])
    return lam * x + (1 - lam) * x[index], y, y[index], lam


for epoch in range(3):
    model.train()
    for x, y in loader:
        x, y = x.cuda(gpu_ids[0]), y.cuda(gpu_ids[0])
        x, ya, yb, lam = mixup(x, y)
        out = model(x)
        loss = lam * F.cross_entropy(out, ya) + (1 - lam) * F.cross_entropy(out, yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_ema()
    ema.eval()
    with torch.no_grad():
        acc = (ema(waves.cuda(gpu_ids[0])).argmax(1).cpu() == labels).float().mean().item()
    print('epoch', epoch, 'loss %.4f' % loss.item(), 'ema acc %.4f' % acc, 'steps', step)
torch.save({'ema': ema.state_dict(), 'net': net.state_dict()}, 'sound.pth')
