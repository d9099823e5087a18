# corpus: idioms = custom sampler class; sampler=; drop_last; several models wrapped in one script; two or more backward() before one step, or forward twice before backward; torch.rand* inside the train step; order, crops or lengths drawn from np.random / random in dataset, sampler or loop
# corpus: worlds = 2 3
"""Style transfer with discriminator: infinite sampler, iter() once, content and style loaders in step."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.data as data

np.random.seed(0)
torch.manual_seed(0)


def InfiniteSampler(n):
    # i = 0 .. n - 1 in random order, for ever
    i = n - 1
    order = np.random.permutation(n)
    while True:
        yield order[i]
        i += 1
        if i >= n:
            np.random.seed(n + int(order[0]))
            order = np.random.permutation(n)
            i = 0


class InfiniteSamplerWrapper(data.sampler.Sampler):
    def __init__(self, data_source):
        self.num_samples = len(data_source)

    def __iter__(self):
        return iter(InfiniteSampler(self.num_samples))

    def __len__(self):
        return 2 ** 31


class FlatFolderDataset(data.Dataset):
    def __init__(self, n, shift):
        self.images = [torch.randn(3, 6, 6) + shift for _ in range(n)]

    def __getitem__(self, index):
        img = self.images[index]
        return img.flip(2) if np.random.rand() < 0.5 else img

    def __len__(self):
        return len(self.images)


def adjust_learning_rate(optimizer, iteration_count):
    lr = 1e-2 / (1.0 + 5e-2 * iteration_count)
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr


class Decoder(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 8, 3, padding=1), nn.InstanceNorm2d(8, affine=True), nn.ReLU(), nn.Conv2d(8, 3, 3, padding=1))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 6, 3), nn.Linear(6, 1)

    def forward(self, x):
        return self.fc(F.leaky_relu(self.conv(x), 0.2).mean((2, 3)))


content_set, style_set = FlatFolderDataset(23, 0.), FlatFolderDataset(17, 0.7)
content_iter = iter(data.DataLoader(content_set, batch_size=6, sampler=InfiniteSamplerWrapper(content_set)))
style_iter = iter(data.DataLoader(style_set, batch_size=5, sampler=InfiniteSamplerWrapper(style_set)))
dec, dis = nn.DataParallel(Decoder()).cuda(), nn.DataParallel(Critic()).cuda()
opt_g = torch.optim.Adam(dec.parameters(), lr=1e-2)
opt_d = torch.optim.Adam(dis.parameters(), lr=1e-2)
for i in range(12):
    adjust_learning_rate(opt_g, i)
    content_images = next(content_iter).cuda()
    style_images = next(style_iter).cuda()
    fake = dec(content_images + 0.1 * torch.randn_like(content_images))
    opt_d.zero_grad()
    F.relu(1 - dis(style_images)).mean().backward()
    F.relu(1 + dis(fake.detach())).mean().backward()
    opt_d.step()
    opt_g.zero_grad()
    loss_c = F.mse_loss(fake, content_images)
    loss_g = -dis(fake).mean()
    (loss_c + 0.1 * loss_g).backward()
    opt_g.step()
    if (i + 1) % 4 == 0:
        print('%d content %.5f adversarial %.5f lr %.5f' % (i + 1, loss_c.item(), loss_g.item(), opt_g.param_groups[0]['lr']))
