import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Pix2Pix(nn.Module):
    def __init__(self, lr):
        super().__init__()
        self.netG = nn.Sequential(nn.Conv2d(1, 6, 3, 1, 1), nn.InstanceNorm2d(6), nn.ReLU(), nn.Conv2d(6, 1, 3, 1, 1))
        self.netD = nn.Sequential(nn.Conv2d(2, 6, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(6, 1, 2))
        self.optimizer_G = torch.optim.Adam(self.netG.parameters(), lr, betas=(0.5, 0.999))
        self.optimizer_D = torch.optim.Adam(self.netD.parameters(), lr, betas=(0.5, 0.999))

    def forward(self, label, image):
        fake = self.netG(label)
        real_score = self.netD(torch.cat([label, image], 1))
        fake_score = self.netD(torch.cat([label, fake.detach()], 1))
        gan_score = self.netD(torch.cat([label, fake], 1))
        loss_D = ((real_score - 1) ** 2).mean() + (fake_score ** 2).mean()
        loss_G = ((gan_score - 1) ** 2).mean() + 5 * (fake - image).abs().mean()
        return [loss_G[None], loss_D[None]], fake


def build_model(config):
    model = Pix2Pix(config['lr'])
    if len(config['gpu_ids']):
        model.cuda(config['gpu_ids'][0])
        return torch.nn.DataParallel(model, device_ids=config['gpu_ids'])
    return model


def build_loader(config, n):
    g = torch.Generator().manual_seed(n)
    label = torch.rand(n, 1, 4, 4, generator=g)
    return DataLoader(TensorDataset(label, 1 - label ** 2), batch_size=config['batch'], shuffle=n > 20)
