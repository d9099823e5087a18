# corpus: idioms = loader or dataset rebuilt during training; shuffle literal True; drop_last; len(loader.dataset); torch.rand* inside the train step; several models wrapped in one script; loader or dataset rebuilt during training; lr / phase / stop schedule driven by locally counted samples or tokens; DataLoader built in: same file, other scope (relative to the wrap)
# corpus: worlds = 2 4
"""Progressive growing: the loader is built anew for each resolution, phases end by the number of images shown."""
import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils import data

torch.manual_seed(77)


class MultiResolution(data.Dataset):
    def __init__(self, n, resolution=4):
        self.full = torch.rand(n, 3, 16, 16)
        self.resolution = resolution

    def __len__(self):
        return len(self.full)

    def __getitem__(self, i):
        return F.adaptive_avg_pool2d(self.full[i], self.resolution) * 2 - 1


def sample_data(dataset, batch_size, image_size=4):
    dataset.resolution = image_size
    loader = data.DataLoader(dataset, shuffle=True, batch_size=batch_size, num_workers=0, drop_last=True)
    return loader


class G(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8 * 16)
        self.to_rgb = nn.ModuleList([nn.Conv2d(8, 3, 1) for _ in range(3)])
        self.prog = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in range(2)])

    def forward(self, z, step=0, alpha=-1):
        x = self.fc(z).view(-1, 8, 4, 4)
        for i in range(step):
            prev, x = x, F.leaky_relu(self.prog[i](F.interpolate(x, scale_factor=2)), 0.2)
        out = self.to_rgb[step](x)
        if step > 0 and 0 <= alpha < 1:
            skip = F.interpolate(self.to_rgb[step - 1](prev), scale_factor=2)
            out = (1 - alpha) * skip + alpha * out
        return out


class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.from_rgb = nn.ModuleList([nn.Conv2d(3, 8, 1) for _ in range(3)])
        self.final = nn.Linear(9, 1)

    def forward(self, x, step=0, alpha=-1):
        h = F.leaky_relu(self.from_rgb[step](x), 0.2)
        std = torch.sqrt(h.var(0, unbiased=False) + 1e-8).mean().expand(len(h), 1)
        return self.final(torch.cat([h.mean((2, 3)), std], 1))


generator, discriminator = nn.DataParallel(G()).cuda(), nn.DataParallel(D()).cuda()
g_optimizer = optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.99))
d_optimizer = optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.0, 0.99))
sizes = {4: 8, 8: 8, 16: 4}
dataset = MultiResolution(21)
phase, step, used_sample, max_step = 24, 0, 0, 2
resolution = 4
loader = sample_data(dataset, sizes[resolution], resolution)
data_loader = iter(loader)
for i in range(14):
    alpha = min(1, 1 / phase * (used_sample + 1)) if step > 0 else 1
    if used_sample > phase and step < max_step:
        used_sample = 0
        step += 1
        alpha = 0
        resolution = 4 * 2 ** step
        loader = sample_data(dataset, sizes[resolution], resolution)
        data_loader = iter(loader)
        print('resolution', resolution, 'batches', len(loader), 'of', len(loader.dataset), 'images')
    try:
        real_image = next(data_loader)
    except (OSError, StopIteration):
        data_loader = iter(loader)
        real_image = next(data_loader)
    used_sample += real_image.shape[0]
    real_image = real_image.cuda()
    z1, z2 = torch.randn(2, len(real_image), 8, device='cuda').chunk(2, 0)
    discriminator.zero_grad()
    real_loss = F.softplus(-discriminator(real_image, step, alpha)).mean()
    real_loss.backward()
    with torch.no_grad():
        fake = generator(z1.squeeze(0), step, alpha)
    fake_loss = F.softplus(discriminator(fake, step, alpha)).mean()
    fake_loss.backward()
    d_optimizer.step()
    generator.zero_grad()
    loss = F.softplus(-discriminator(generator(z2.squeeze(0), step, alpha), step, alpha)).mean()
    loss.backward()
    g_optimizer.step()
    print('Size: %d; G: %.4f; D: %.4f; Alpha: %.4f' % (resolution, loss.item(), (real_loss + fake_loss).item(), alpha))
