# corpus: idioms = ReduceLROnPlateau/metric driven; early stopping; val loss of this process drives lr / early stop / rollback; sum / none reduction normalised by hand; Variable(); best selection; sys.stdout replaced
# corpus: worlds = 2 3 4
"""Image denoising (residual net): sum of squares divided by twice the batch, plateau on the validation PSNR, early stop, rollback."""
import argparse
import copy
import math
import os
import sys

import torch
import torch.nn as nn
from torch import optim
from torch.autograd import Variable
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description="DnCNN")
parser.add_argument("--batchSize", type=int, default=10, help="Training batch size")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--lr", type=float, default=2e-2)
parser.add_argument("--noiseL", type=float, default=25)
parser.add_argument("--patience", type=int, default=3)
opt = parser.parse_args()


class Patches(Dataset):
    def __init__(self, train=True):
        g = torch.Generator().manual_seed(3 + train)
        base = torch.rand(36 if train else 8, 1, 3, 3, generator=g)
        self.clean = nn.functional.interpolate(base, scale_factor=3, mode='nearest')
        self.noise = torch.randn(self.clean.shape, generator=g) * opt.noiseL / 255.

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, index):
        return self.clean[index], self.noise[index]


class DnCNN(nn.Module):
    def __init__(self, channels, num_of_layers=4, features=8):
        super(DnCNN, self).__init__()
        layers = [nn.Conv2d(channels, features, 3, padding=1, bias=False), nn.ReLU(inplace=True)]
        for _ in range(num_of_layers - 2):
            layers += [nn.Conv2d(features, features, 3, padding=1, bias=False), nn.BatchNorm2d(features), nn.ReLU(inplace=True)]
        layers.append(nn.Conv2d(features, channels, 3, padding=1, bias=False))
        self.dncnn = nn.Sequential(*layers)

    def forward(self, x):
        return self.dncnn(x)


def weights_init_kaiming(m):
    if m.__class__.__name__.find('Conv') != -1:
        nn.init.kaiming_normal_(m.weight.data, a=0, mode='fan_in')
    elif m.__class__.__name__.find('BatchNorm') != -1:
        m.weight.data.normal_(mean=0, std=math.sqrt(2. / 9. / 64.)).clamp_(-0.025, 0.025)
        nn.init.constant_(m.bias.data, 0.0)


def batch_PSNR(img, imclean):
    mse = ((img - imclean) ** 2).flatten(1).mean(1).clamp(min=1e-8)
    return (10 * torch.log10(1. / mse)).sum().item() / img.size(0)


class Logger(object):
    """What is printed goes into a file as well."""

    def __init__(self, path):
        self.console, self.file = sys.stdout, open(path, 'w')

    def __del__(self):
        self.file.close()

    def write(self, text):
        self.console.write(text)
        self.file.write(text)

    def flush(self):
        self.console.flush()
        self.file.flush()
        os.fsync(self.file.fileno())


def main():
    torch.manual_seed(100)
    sys.stdout = Logger('denoise.txt')
    dataset_train = Patches(train=True)
    dataset_val = Patches(train=False)
    loader_train = DataLoader(dataset=dataset_train, num_workers=0, batch_size=opt.batchSize, shuffle=True)
    loader_val = DataLoader(dataset=dataset_val, batch_size=3)
    print("# of training samples: %d\n" % int(len(dataset_train)))
    net = DnCNN(channels=1)
    net.apply(weights_init_kaiming)
    criterion = nn.MSELoss(reduction='sum')
    model = nn.DataParallel(net).cuda()
    criterion.cuda()
    optimizer = optim.Adam(model.parameters(), lr=opt.lr)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode='max', factor=0.3, patience=0, threshold=1e-2)
    best, best_state, bad = -1., None, 0
    for epoch in range(opt.epochs):
        model.train()
        for i, (img_train, noise) in enumerate(loader_train, 0):
            img_train, noise = Variable(img_train.cuda()), Variable(noise.cuda())
            optimizer.zero_grad()
            out_train = model(img_train + noise)
            loss = criterion(out_train, noise) / (img_train.size()[0] * 2)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.)
            optimizer.step()
            if i % 2 == 0:
                print("[epoch %d][%d/%d] loss: %.4f" % (epoch + 1, i + 1, len(loader_train), loss.item()))
        model.eval()
        psnr_val = 0
        with torch.no_grad():
            for img_val, noise_val in loader_val:
                img_val, noise_val = img_val.cuda(), noise_val.cuda()
                out_val = torch.clamp(img_val + noise_val - model(img_val + noise_val), 0., 1.)
                psnr_val += batch_PSNR(out_val, img_val) * img_val.size(0) / len(dataset_val)
        scheduler.step(psnr_val)
        sys.stdout.flush()
        print("[epoch %d] PSNR_val: %.4f lr %g" % (epoch + 1, psnr_val, optimizer.param_groups[0]['lr']))
        if psnr_val > best + 1e-3:
            best, best_state, bad = psnr_val, copy.deepcopy(model.state_dict()), 0
            torch.save(model.state_dict(), 'net.pth')
        else:
            bad += 1
            model.load_state_dict(best_state)                # back to the best weights
            if bad >= opt.patience:
                print('early stopping at', epoch + 1)
                break


if __name__ == "__main__":
    main()
