# corpus: idioms = nn.DataParallel; function main/train/run; rebinds the same name; device_ids from config/args/variable; CUDA_VISIBLE_DEVICES set in the script; len(gpu_ids)/num_gpus from config; argparse; Variable(); .cuda()
# corpus: idioms = set_device/default tensor type; cudnn flags; collate_fn; len(loader.dataset); yaml/yacs/json config; text/csv/json log file; makedirs/mkdir; DP(...).cuda(); loss.data[0]; rmtree/copy of code
"""Facial landmarks. GPUs come as a string on the command line and are written to the environment after parsing."""
import argparse
import json
import os
import shutil
import sys
import torch
import torch.nn as nn
from torch.autograd import Variable
from torch.utils.data import Dataset, DataLoader

parser = argparse.ArgumentParser()
parser.add_argument('--gpu', default='0,1', help='gpu ids')
parser.add_argument('--name', default='landmarks')
parser.add_argument('--batch', default=8, type=int)
parser.add_argument('--epoch', default=3, type=int)
parser.add_argument('--optim', default='rmsprop', choices=['rmsprop', 'adam'])
opt = parser.parse_args()
os.environ["CUDA_VISIBLE_DEVICES"] = opt.gpu
opt.gpus = list(range(len(opt.gpu.split(','))))
exp = os.path.join('exp', opt.name)


class Faces(Dataset):
    def __init__(self, train):
        g = torch.Generator().manual_seed(100 if train else 200)
        n = 44 if train else 13
        self.points = torch.rand(n, 5, 2, generator=g)
        grid = torch.arange(6.).view(1, 6) / 6
        self.images = torch.stack([torch.exp(-((grid - p[0, 0]) ** 2 + (grid.t() - p[0, 1]) ** 2) * 9) for p in self.points])[:, None]

    def __len__(self):
        return len(self.points)

    def __getitem__(self, i):
        return self.images[i], self.points[i, :1], {'id': i}


def collate(batch):
    images, points, metas = zip(*batch)
    return torch.stack(images), torch.stack(points), list(metas)


class Hourglass(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 6, 3, 1, 1)
        self.heads = nn.ModuleList([nn.Linear(6 * 36, 2) for _ in range(2)])

    def forward(self, x):
        h = torch.relu(self.stem(x)).flatten(1)
        return [head(h).view(-1, 1, 2) for head in self.heads]


def run(epoch, loader, model, optimizer=None):
    model.train(optimizer is not None)
    total, worst = 0, {'id': -1, 'err': -1}
    for images, points, metas in loader:
        images, points = Variable(images.cuda()), Variable(points.cuda())
        outputs = model(images)
        loss = sum(((o - points) ** 2).mean() for o in outputs)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        errs = (outputs[-1].data - points).norm(dim=2).mean(1).cpu()
        for meta, err in zip(metas, errs.tolist()):
            if err > worst['err']:
                worst = {'id': meta['id'], 'err': err}
        total += loss.item() * images.size(0)
    return total / len(loader.dataset), worst


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.enabled = True
    if os.path.exists(exp):
        shutil.rmtree(exp)
    os.makedirs(exp)
    shutil.copy(sys.argv[0], os.path.join(exp, 'main.py.txt'))
    with open(os.path.join(exp, 'opt.json'), 'w') as f:
        json.dump(vars(opt), f, indent=2, sort_keys=True)
    model = Hourglass()
    if len(opt.gpus) > 1:
        model = nn.DataParallel(model, device_ids=opt.gpus).cuda()
    else:
        model = model.cuda()
    make = {'rmsprop': torch.optim.RMSprop, 'adam': torch.optim.Adam}[opt.optim]
    optimizer = make(model.parameters(), 2e-3)
    train_loader = DataLoader(Faces(True), opt.batch, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(Faces(False), 5, shuffle=False, collate_fn=collate)
    log = open(os.path.join(exp, 'log.txt'), 'w')
    for epoch in range(1, opt.epoch + 1):
        train, _ = run(epoch, train_loader, model, optimizer)
        with torch.no_grad():
            val, worst = run(epoch, val_loader, model)
        line = 'epoch: {} |train {:.5f} |val {:.5f} |worst {} {:.4f}'.format(epoch, train, val, worst['id'], worst['err'])
        print(line)
        log.write(line + '\n')
        torch.save(model.state_dict(), os.path.join(exp, 'model_{}.pth'.format(epoch)))
        if epoch > 1:
            os.remove(os.path.join(exp, 'model_{}.pth'.format(epoch - 1)))
    log.close()


if __name__ == '__main__':
    main()
