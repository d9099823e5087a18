import torch
import torch.nn as nn
import torch.nn.functional as F

from nets.sync_batchnorm import SynchronizedBatchNorm2d


class Modulated(nn.Module):
    """Normalises without parameters; scale and shift come from the label map."""

    def __init__(self, width, labels):
        super().__init__()
        self.param_free_norm = SynchronizedBatchNorm2d(width, affine=False)
        self.shared = nn.Sequential(nn.Conv2d(labels, 4, 3, padding=1), nn.ReLU())
        self.gamma, self.beta = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(4, width, 3, padding=1)

    def forward(self, x, segmap):
        x = self.param_free_norm(x)
        segmap = self.shared(F.interpolate(segmap, size=x.size()[2:], mode='nearest'))
        return x * (1 + self.gamma(segmap)) + self.beta(segmap)


class Generator(nn.Module):
    def __init__(self, labels, width=6):
        super().__init__()
        self.head = nn.Conv2d(labels, width, 3, padding=1)
        self.norm_0, self.conv_0 = Modulated(width, labels), nn.Conv2d(width, width, 3, padding=1)
        self.norm_1, self.conv_1 = Modulated(width, labels), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, segmap):
        x = self.head(F.interpolate(segmap, scale_factor=0.5))
        x = self.conv_0(F.leaky_relu(self.norm_0(x, segmap), 2e-1))
        x = F.interpolate(x, scale_factor=2)
        return torch.tanh(self.conv_1(F.leaky_relu(self.norm_1(x, segmap), 2e-1)))


class Pix2PixModel(nn.Module):
    def __init__(self, opt):
        super().__init__()
        self.opt = opt
        self.netG = Generator(opt.label_nc)
        self.netD = nn.Sequential(nn.Conv2d(opt.label_nc + 3, 6, 4, 2, 1), nn.LeakyReLU(0.2),
                                  nn.Conv2d(6, 6, 3, padding=1), SynchronizedBatchNorm2d(6), nn.LeakyReLU(0.2),
                                  nn.Conv2d(6, 1, 3, padding=1))

    def forward(self, data, mode):
        label = data['label'].long()
        segmap = torch.zeros(label.size(0), self.opt.label_nc, *label.shape[2:], device=label.device)
        segmap = segmap.scatter_(1, label, 1.0)
        if mode == 'generator':
            fake = self.netG(segmap)
            on_fake, on_real = self.discriminate(segmap, fake, data['image'])
            losses = {'GAN': -on_fake.mean(), 'L1': 5 * F.l1_loss(fake, data['image'])}
            return losses, fake
        if mode == 'discriminator':
            with torch.no_grad():
                fake = self.netG(segmap)
            fake = fake.detach().requires_grad_()
            on_fake, on_real = self.discriminate(segmap, fake, data['image'])
            return {'D_Fake': F.relu(1 + on_fake).mean(), 'D_real': F.relu(1 - on_real).mean()}
        with torch.no_grad():
            return self.netG(segmap)

    def discriminate(self, segmap, fake, real):
        both = torch.cat([torch.cat([segmap, fake], 1), torch.cat([segmap, real], 1)], 0)
        out = self.netD(both)
        return out[:out.size(0) // 2], out[out.size(0) // 2:]

    def create_optimizers(self, opt):
        return (torch.optim.Adam(self.netG.parameters(), lr=opt.lr / 2, betas=(0.0, 0.9)),
                torch.optim.Adam(self.netD.parameters(), lr=opt.lr * 2, betas=(0.0, 0.9)))

    def save(self, epoch):
        for name in ('G', 'D'):
            torch.save(getattr(self, 'net' + name).cpu().state_dict(), '%s_net_%s.pth' % (epoch, name))
            getattr(self, 'net' + name).cuda()
