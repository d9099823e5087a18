# corpus: idioms = two or more backward() before one step, or forward twice before backward; several optimizers; several models wrapped in one script; torch.rand* inside the train step; parameters without gradient on a step (optional heads, toggled requires_grad, unused branches)
# corpus: worlds = 2 3 4
"""DCGAN: errD_real.backward(), errD_fake.backward(), then the generator through the discriminator; both nets wrapped."""
from __future__ import print_function

import argparse
import random

import torch
import torch.nn as nn
import torch.nn.parallel
import torch.optim as optim
import torch.utils.data

parser = argparse.ArgumentParser()
parser.add_argument('--batchSize', type=int, default=12)
parser.add_argument('--nz', type=int, default=5)
parser.add_argument('--niter', type=int, default=2)
parser.add_argument('--lr', type=float, default=0.002)
parser.add_argument('--ngpu', type=int, default=2)
parser.add_argument('--manualSeed', type=int, default=999)
opt = parser.parse_args()
print("Random Seed: ", opt.manualSeed)
random.seed(opt.manualSeed)
torch.manual_seed(opt.manualSeed)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
nz = opt.nz


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find('Conv') != -1:
        torch.nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find('BatchNorm') != -1:
        torch.nn.init.normal_(m.weight, 1.0, 0.02)
        torch.nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()
        self.main = nn.Sequential(nn.ConvTranspose2d(nz, 8, 4, 1, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
                                  nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.conv = nn.Conv2d(1, 6, 4, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(6)
        self.head = nn.Linear(6 * 16 + 1, 1)

    def forward(self, input):
        h = torch.nn.functional.leaky_relu(self.bn(self.conv(input)), 0.2).flatten(1)
        stat = h.std(0, unbiased=False).mean().expand(len(h), 1)      # minibatch stddev of the replica
        return torch.sigmoid(self.head(torch.cat([h, stat], 1))).view(-1, 1).squeeze(1)


netG = Generator().to(device)
netG.apply(weights_init)
netG = nn.DataParallel(netG)
netD = Discriminator().to(device)
netD.apply(weights_init)
netD = nn.DataParallel(netD)
criterion = nn.BCELoss()
images = torch.rand(32, 1, 8, 8) * 2 - 1
dataloader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images), batch_size=opt.batchSize, shuffle=True, num_workers=0)
fixed_noise = torch.randn(opt.batchSize, nz, 1, 1, device=device)
real_label, fake_label = 1., 0.
optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(0.5, 0.999))

for epoch in range(opt.niter):
    for i, data in enumerate(dataloader, 0):
        # (1) Update D network: maximize log(D(x)) + log(1 - D(G(z)))
        for p in netD.parameters():
            p.requires_grad = True
        netD.zero_grad()
        real_cpu = data[0].to(device)
        batch_size = real_cpu.size(0)
        label = torch.full((batch_size,), real_label, dtype=torch.float, device=device)
        label -= 0.1 * torch.rand(batch_size, device=device)      # soft labels
        output = netD(real_cpu)
        errD_real = criterion(output, label)
        errD_real.backward()
        D_x = output.mean().item()
        noise = torch.randn(batch_size, nz, 1, 1, device=device)
        fake = netG(noise)
        label.fill_(fake_label)
        output = netD(fake.detach())
        errD_fake = criterion(output, label)
        errD_fake.backward()
        D_G_z1 = output.mean().item()
        errD = errD_real + errD_fake
        optimizerD.step()
        # (2) Update G network: maximize log(D(G(z)))
        for p in netD.parameters():
            p.requires_grad = False
        netG.zero_grad()
        label.fill_(real_label)
        output = netD(fake)
        errG = criterion(output, label)
        errG.backward()
        optimizerG.step()
        print('[%d/%d][%d/%d] Loss_D: %.4f Loss_G: %.4f D(x): %.4f D(G(z)): %.4f / %.4f'
              % (epoch, opt.niter, i, len(dataloader), errD.item(), errG.item(), D_x, D_G_z1, output.mean().item()))
        if i % 2 == 0:
            with torch.no_grad():
                sample = netG(fixed_noise)
            torch.save(sample.cpu(), 'fake_samples_epoch_%03d.pt' % epoch)
    torch.save(netG.state_dict(), 'netG_epoch_%d.pth' % epoch)
    torch.save(netD.state_dict(), 'netD_epoch_%d.pth' % epoch)
