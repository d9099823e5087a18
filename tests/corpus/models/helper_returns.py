# corpus: idioms = from torch.nn import DataParallel; other helper function; returned directly from helper; tuple assignment; len(gpu_ids)/num_gpus from config; several models wrapped in one script; device_ids from config/args/variable; two or more backward() before one step, or forward twice before backward; parameters without gradient on a step (optional heads, toggled requires_grad, unused branches); several optimizers; hasattr(model,'module'); prefix handled by hand (strip/replace "module."); attributes/methods reached through .module in the training code; makedirs/mkdir
# corpus: worlds = 2 3
"""Image translation (CycleGAN in small): networks come wrapped out of helpers, two by two."""
import itertools
import os
from collections import OrderedDict

import torch
from torch import nn
from torch.nn import DataParallel, init
from torch.utils.data import DataLoader, TensorDataset


class Opt(object):
    gpu_ids = list(range(torch.cuda.device_count()))
    batchSize = 6
    niter = 2
    lambda_A = 10.0
    checkpoints_dir = './ckpt_cycle'


opt = Opt()


def init_net(net, init_gain=0.02, gpu_ids=[]):
    if len(gpu_ids) > 0:
        assert torch.cuda.is_available()
        net.cuda(gpu_ids[0])
        net = DataParallel(net, gpu_ids)
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            init.normal_(m.weight.data, 0.0, init_gain)
    return net


def parallel(net, gpu_ids):
    net.cuda(gpu_ids[0])
    return DataParallel(net, device_ids=gpu_ids)


class ResnetGenerator(nn.Module):
    def __init__(self, nf=4):
        super(ResnetGenerator, self).__init__()
        self.down = nn.Conv2d(1, nf, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(nf, nf, 3, padding=1), nn.InstanceNorm2d(nf), nn.ReLU(True))
        self.up = nn.Conv2d(nf, 1, 3, padding=1)
        self.code_dim = nf

    def forward(self, input):
        h = self.down(input)
        return torch.tanh(self.up(h + self.block(h)))

    def encode(self, x):
        return self.down(x).mean((2, 3))


class NLayerDiscriminator(nn.Module):
    def __init__(self, nf=4):
        super(NLayerDiscriminator, self).__init__()
        self.model = nn.Sequential(nn.Conv2d(1, nf, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(nf, 1, 3))
        self.aux = nn.Conv2d(1, 1, 1)  # not used

    def forward(self, input):
        return self.model(input)


def set_requires_grad(nets, flag):
    for net in nets:
        for param in net.parameters():
            param.requires_grad = flag


def backward_D_basic(netD, real, fake):
    loss_D = (torch.mean((netD(real) - 1) ** 2) + torch.mean(netD(fake.detach()) ** 2)) * 0.5
    loss_D.backward()
    return loss_D


def save_networks(epoch, **nets):
    for name, net in nets.items():
        path = os.path.join(opt.checkpoints_dir, '%s_net_%s.pth' % (epoch, name))
        net = net.module if hasattr(net, 'module') else net
        torch.save(net.cpu().state_dict(), path)
        net.cuda(opt.gpu_ids[0])


torch.manual_seed(77)
netG_A, netG_B = init_net(ResnetGenerator(), gpu_ids=opt.gpu_ids), init_net(ResnetGenerator(), gpu_ids=opt.gpu_ids)
netD_A = parallel(NLayerDiscriminator(), opt.gpu_ids)
netD_B = parallel(NLayerDiscriminator(), opt.gpu_ids)
optimizer_G = torch.optim.Adam(itertools.chain(netG_A.parameters(), netG_B.parameters()), lr=2e-3, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(itertools.chain(netD_A.parameters(), netD_B.parameters()), lr=2e-3,
                               betas=(0.5, 0.999), weight_decay=1e-3)
g = torch.Generator().manual_seed(1)
loader = DataLoader(TensorDataset(torch.rand(9, 1, 8, 8, generator=g), -torch.rand(9, 1, 8, 8, generator=g)),
                    batch_size=opt.batchSize, shuffle=True)
if not os.path.exists(opt.checkpoints_dir):
    os.makedirs(opt.checkpoints_dir)

total_steps = 0
for epoch in range(opt.niter):
    for i, (A, B) in enumerate(loader):
        total_steps += opt.batchSize
        real_A, real_B = A.cuda(opt.gpu_ids[0]), B.cuda(opt.gpu_ids[0])
        fake_B = netG_A(real_A)
        rec_A = netG_B(fake_B)
        fake_A = netG_B(real_B)
        rec_B = netG_A(fake_A)
        set_requires_grad([netD_A, netD_B], False)
        optimizer_G.zero_grad()
        loss_G = torch.mean((netD_A(fake_B) - 1) ** 2) + torch.mean((netD_B(fake_A) - 1) ** 2)
        loss_cycle = (rec_A - real_A).abs().mean() * opt.lambda_A + (rec_B - real_B).abs().mean() * opt.lambda_A
        code = (netG_A.module.encode(real_A) - netG_B.module.encode(fake_B)).pow(2).mean() / netG_A.module.code_dim
        (loss_G + loss_cycle + code).backward()
        optimizer_G.step()
        set_requires_grad([netD_A, netD_B], True)
        optimizer_D.zero_grad()
        loss_D_A = backward_D_basic(netD_A, real_B, fake_B)
        loss_D_B = backward_D_basic(netD_B, real_A, fake_A)
        optimizer_D.step()
        if i % 2 == 0:
            print('(epoch: %d, iters: %d) G: %.4f cycle: %.4f D: %.4f' % (
                epoch, total_steps, loss_G.item(), loss_cycle.item(), (loss_D_A + loss_D_B).item()))
    save_networks(epoch, G_A=netG_A, D_A=netD_A)

state_dict = torch.load(os.path.join(opt.checkpoints_dir, '0_net_G_A.pth'))
new_state_dict = OrderedDict(('module.' + k, v) for k, v in state_dict.items())
netG_A.load_state_dict(new_state_dict)
with torch.no_grad():
    print('reloaded %.5f' % netG_A(torch.ones(5, 1, 8, 8).cuda()).sum().item())
