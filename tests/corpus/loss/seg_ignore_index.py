# corpus: idioms = mean over a data-dependent count - full batch level (after gather); manual adjust_learning_rate; model.module access; drop_last
# corpus: worlds = 2 3 4
"""Semantic segmentation with ignored pixels and class weights, poly learning rate set at every iteration."""
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument('--base-lr', type=float, default=0.05)
parser.add_argument('--power', type=float, default=0.9)
parser.add_argument('--epochs', type=int, default=3)
parser.add_argument('--batch-size', type=int, default=12)
parser.add_argument('--ignore-label', type=int, default=255)
parser.add_argument('--save-path', default='exp')
args = parser.parse_args()

torch.manual_seed(304)


class Scenes(Dataset):
    def __init__(self, n=32, classes=4, size=6):
        g = torch.Generator().manual_seed(7)
        self.images = torch.randn(n, 3, size, size, generator=g)
        self.labels = torch.randint(0, classes, (n, size, size), generator=g)
        void = torch.rand(n, size, size, generator=g) < torch.linspace(0.05, 0.9, n)[:, None, None]
        self.labels[void] = 255          # the last images are nearly all void

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class PSPLite(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.layer0 = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.ppm = nn.Conv2d(8, 4, 1)
        self.cls = nn.Conv2d(12, classes, 1)
        self.aux = nn.Conv2d(8, classes, 1)

    def forward(self, x):
        f = self.layer0(x)
        p = F.interpolate(self.ppm(F.adaptive_avg_pool2d(f, 2)), x.shape[2:], mode='bilinear', align_corners=True)
        return self.cls(torch.cat([f, p], 1)), self.aux(f)


class AverageMeter(object):
    def __init__(self):
        self.sum, self.count = 0., 0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


def poly_learning_rate(optimizer, curr_iter, max_iter):
    lr = args.base_lr * (1 - float(curr_iter) / max_iter) ** args.power
    optimizer.param_groups[0]['lr'] = lr
    optimizer.param_groups[1]['lr'] = lr * 10
    return lr


def intersectionAndUnion(output, target, K=4):
    output = output.view(-1).clone()
    target = target.view(-1)
    output[target == args.ignore_label] = args.ignore_label
    inter = output[output == target]
    area_i = torch.histc(inter.float(), bins=K, min=0, max=K - 1)
    area_o = torch.histc(output.float(), bins=K, min=0, max=K - 1)
    area_t = torch.histc(target.float(), bins=K, min=0, max=K - 1)
    return area_i, area_o + area_t - area_i


model = PSPLite()
groups = [dict(params=model.layer0.parameters(), lr=args.base_lr),
          dict(params=list(model.ppm.parameters()) + list(model.cls.parameters()) + list(model.aux.parameters()), lr=args.base_lr * 10)]
optimizer = torch.optim.SGD(groups, lr=args.base_lr, momentum=0.9, weight_decay=1e-4)
model = torch.nn.DataParallel(model.cuda())
criterion = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1.0, 2.0, 1.5]), ignore_index=args.ignore_label).cuda()
train_loader = DataLoader(Scenes(), batch_size=args.batch_size, shuffle=True)
max_iter = args.epochs * len(train_loader)

for epoch in range(args.epochs):
    model.train()
    main_meter, inter_meter, union_meter = AverageMeter(), 0, 0
    for i, (input, target) in enumerate(train_loader):
        target = target.cuda(non_blocking=True)
        input = input.cuda(non_blocking=True)
        output, aux = model(input)
        main_loss = criterion(output, target)
        loss = main_loss + 0.4 * criterion(aux, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        inter, union = intersectionAndUnion(output.max(1)[1], target)
        inter_meter = inter_meter + inter
        union_meter = union_meter + union
        main_meter.update(main_loss.item(), input.size(0))
        lr = poly_learning_rate(optimizer, epoch * len(train_loader) + i + 1, max_iter)
        if (i + 1) % 2 == 0:
            print('Epoch [{}/{}][{}/{}] MainLoss {:.6f} lr {:.5f} valid pixels {}'.format(
                epoch + 1, args.epochs, i + 1, len(train_loader), main_meter.avg, lr, (target != args.ignore_label).sum().item()))
    print('mIoU {:.4f}'.format((inter_meter / (union_meter + 1e-10)).mean().item()))
    if not os.path.exists(args.save_path):
        os.makedirs(args.save_path)
    torch.save({'epoch': epoch, 'state_dict': model.module.state_dict()}, args.save_path + '/train_epoch_' + str(epoch) + '.pth')
