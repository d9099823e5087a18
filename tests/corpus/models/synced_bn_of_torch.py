# corpus: idioms = nn.DataParallel; returned directly from helper; other helper function; DP(...).to(device); argparse; lr_scheduler; torch.save
# corpus: worlds = 2 3
"""convert_sync_batchnorm without a process group: under DataParallel each replica normalises its own rows."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument('--no-sync-bn', dest='sync_bn', action='store_false')
args = parser.parse_args()
device = torch.device('cuda')


class Decoder(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.norm = nn.SyncBatchNorm(width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x, size):
        return F.interpolate(self.head(F.relu(self.norm(x))), size=size, mode='bilinear', align_corners=False)


class Segmenter(nn.Module):
    def __init__(self, width=6, classes=3):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.decoder = Decoder(width, classes)

    def forward(self, x):
        return self.decoder(self.encoder(x), x.shape[-2:])


def build():
    model = Segmenter()
    if args.sync_bn:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    return nn.DataParallel(model).to(device)


torch.manual_seed(23)
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 - step / 14) ** 0.9)
images, labels = torch.randn(40, 3, 8, 8), torch.randint(0, 3, (40, 8, 8))
labels[:, 0] = 255
for epoch in range(2):
    model.train()
    for rows in torch.randperm(40).split(6):
        output = model(images[rows].to(device))
        loss = F.cross_entropy(output, labels[rows].to(device), ignore_index=255)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    model.eval()
    with torch.no_grad():
        output = model(images[:9].to(device))
    print('epoch %d loss %.5f miou %.4f' % (epoch, loss.item(), (output.argmax(1).cpu() == labels[:9]).float().mean()))
print(sum(isinstance(one, nn.SyncBatchNorm) for one in model.modules()))
torch.save(model.module.state_dict(), 'segmenter.pth')
