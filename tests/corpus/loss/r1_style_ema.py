# corpus: idioms = autograd.grad / create_graph through the wrapped model (attack, penalty); EMA / second copy of weights; batch statistics in forward other than BN (minibatch stddev, global memory bank); retain_graph/create_graph/autograd.grad; parameters without gradient on a step (optional heads, toggled requires_grad, unused branches); raw model kept and used beside the wrapper (optimizer, state_dict, eval, EMA)
# corpus: worlds = 2 3
"""Style-based GAN: lazy R1 penalty, path length with a moving average, minibatch stddev, EMA generator, growing resolution."""
import argparse
import copy
import math
import random

import torch
import torch.nn.functional as F
from torch import autograd, nn, optim


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


def accumulate(model1, model2, decay=0.999):
    par1 = dict(model1.named_parameters())
    par2 = dict(model2.named_parameters())
    for k in par1.keys():
        par1[k].data.mul_(decay).add_(par2[k].data, alpha=1 - decay)


def d_logistic_loss(real_pred, fake_pred):
    return F.softplus(-real_pred).mean() + F.softplus(fake_pred).mean()


def d_r1_loss(real_pred, real_img):
    grad_real, = autograd.grad(outputs=real_pred.sum(), inputs=real_img, create_graph=True)
    return grad_real.pow(2).view(grad_real.shape[0], -1).sum(1).mean()


def g_path_regularize(fake_img, latents, mean_path_length, decay=0.01):
    noise = torch.randn_like(fake_img) / math.sqrt(fake_img.shape[2] * fake_img.shape[3])
    grad, = autograd.grad(outputs=(fake_img * noise).sum(), inputs=latents, create_graph=True)
    path_lengths = torch.sqrt(grad.pow(2).sum(1) + 1e-8)
    path_mean = mean_path_length + decay * (path_lengths.mean() - mean_path_length)
    return (path_lengths - path_mean).pow(2).mean(), path_mean.detach(), path_lengths


class StyledGenerator(nn.Module):
    def __init__(self, code=6):
        super().__init__()
        self.style = nn.Sequential(nn.Linear(code, 8), nn.LeakyReLU(0.2), nn.Linear(8, 8))
        self.const = nn.Parameter(torch.randn(1, 8, 4, 4))
        self.to_rgb = nn.ModuleList([nn.Conv2d(8, 1, 1), nn.Conv2d(8, 1, 3, padding=1)])     # one for each resolution

    def forward(self, z, step=0, return_latents=False):
        w = self.style(z / z.norm(dim=1, keepdim=True))
        h = F.leaky_relu(self.const * w[:, :, None, None], 0.2)
        if step > 0:
            h = F.interpolate(h, scale_factor=2)
        img = self.to_rgb[step](h)
        return (img, w) if return_latents else img


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.from_rgb = nn.ModuleList([nn.Conv2d(1, 6, 1), nn.Conv2d(1, 6, 4, 2, 1)])
        self.conv = nn.utils.spectral_norm(nn.Conv2d(7, 6, 3, padding=1))
        self.out = nn.Linear(6 * 16, 1)

    def forward(self, x, step=0):
        h = F.softplus(self.from_rgb[step](x))
        std = torch.sqrt(h.var(0, unbiased=False) + 1e-8).mean()
        h = torch.cat([h, std.view(1, 1, 1, 1).expand(len(h), 1, 4, 4)], 1)
        return self.out(F.softplus(self.conv(h)).flatten(1))


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--iter', type=int, default=7)
    parser.add_argument('--batch', type=int, default=6)
    parser.add_argument('--d_reg_every', type=int, default=2)
    parser.add_argument('--g_reg_every', type=int, default=3)
    args = parser.parse_args()
    random.seed(3)
    torch.manual_seed(3)
    generator = nn.DataParallel(StyledGenerator()).cuda()
    discriminator = nn.DataParallel(Discriminator()).cuda()
    g_running = StyledGenerator().cuda()
    g_running.train(False)
    accumulate(g_running, generator.module, 0)
    g_optimizer = optim.Adam([{'params': generator.module.style.parameters(), 'lr': 1e-4},
                              {'params': [generator.module.const] + list(generator.module.to_rgb.parameters())}], lr=1e-2, betas=(0.0, 0.99))
    d_optimizer = optim.Adam(discriminator.parameters(), lr=1e-2, betas=(0.0, 0.99), weight_decay=1e-3)
    dataset = torch.randn(40, 1, 8, 8)
    mean_path_length = torch.zeros([]).cuda()

    for i in range(args.iter):
        step = 0 if i < args.iter // 2 else 1                      # growing
        real = dataset[torch.randint(len(dataset), (args.batch,))].cuda()
        if step == 0:
            real = F.avg_pool2d(real, 2)
        requires_grad(generator, False)
        requires_grad(discriminator, True)
        fake = generator(torch.randn(args.batch, 6, device='cuda'), step=step)
        d_loss = d_logistic_loss(discriminator(real, step), discriminator(fake, step))
        discriminator.zero_grad()
        d_loss.backward()
        d_optimizer.step()
        r1 = 0.
        if i % args.d_reg_every == 0:
            real.requires_grad = True
            real_pred = discriminator(real, step=step)
            r1_loss = d_r1_loss(real_pred, real)
            discriminator.zero_grad()
            (5 * r1_loss * args.d_reg_every + 0 * real_pred[0]).backward()
            d_optimizer.step()
            r1 = r1_loss.item()
        requires_grad(generator, True)
        requires_grad(discriminator, False)
        latents = torch.randn(args.batch, 6).cuda().requires_grad_()
        fake, w = generator(latents, step, True)
        g_loss = F.softplus(-discriminator(fake, step)).mean()
        if i % args.g_reg_every == 0:
            path_loss, mean_path_length, path_lengths = g_path_regularize(fake, latents, mean_path_length)
            g_loss = g_loss + 2 * path_loss
        generator.zero_grad()
        g_loss.backward()
        g_optimizer.step()
        accumulate(g_running, generator.module, decay=0.5 ** (1 / 3))
        print('%d step %d; w %.5f; G: %.5f; D: %.5f; R1: %.6f; path: %.6f' % (i, step, w.abs().mean().item(), g_loss.item(), d_loss.item(), r1, mean_path_length.item()))
    best = copy.deepcopy(g_running)
    print('sample mean', best(torch.ones(2, 6).cuda(), 1).mean().item())
    torch.save({'g': generator.module.state_dict(), 'd': discriminator.module.state_dict(), 'g_ema': g_running.state_dict()}, 'checkpoint.pt')
