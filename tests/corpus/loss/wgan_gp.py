# corpus: idioms = autograd.grad / create_graph through the wrapped model (attack, penalty); retain_graph/create_graph/autograd.grad; p.data edits outside optimizer; several optimizers; backward(gradient arg); several models wrapped in one script
# corpus: worlds = 2 3 4
"""WGAN-GP with the old mone/one gradients, critic iterations, and a clipped-critic variant behind a flag."""
import argparse
import os

import torch
import torch.autograd as autograd
import torch.nn as nn
import torch.optim as optim

parser = argparse.ArgumentParser()
parser.add_argument('--critic_iters', type=int, default=3)
parser.add_argument('--batch_size', type=int, default=10)
parser.add_argument('--iters', type=int, default=5)
parser.add_argument('--clip', type=float, default=0.05, help='every 4th critic step clips the weights')
args = parser.parse_args()
torch.manual_seed(1)
use_cuda = torch.cuda.is_available()
LAMBDA = 10
DIM = 16


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()
        self.main = nn.Sequential(nn.Linear(2, DIM), nn.ReLU(True), nn.Linear(DIM, DIM), nn.ReLU(True), nn.Linear(DIM, 2))

    def forward(self, noise, real_data):
        return self.main(noise) + 0.1 * real_data.mean(0)     # conditioned on the replica's real data


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.main = nn.Sequential(nn.Linear(2, DIM), nn.Tanh(), nn.Linear(DIM, DIM), nn.Softplus(), nn.Linear(DIM, 1))

    def forward(self, inputs):
        return self.main(inputs).view(-1)


def inf_train_gen():
    g = torch.Generator().manual_seed(20)
    while True:
        yield torch.randn(args.batch_size, 2, generator=g) * torch.tensor([1.0, 0.2]) + 0.5


def calc_gradient_penalty(netD, real_data, fake_data):
    alpha = torch.rand(real_data.size(0), 1)
    alpha = alpha.expand(real_data.size())
    alpha = alpha.cuda() if use_cuda else alpha
    interpolates = alpha * real_data + ((1 - alpha) * fake_data)
    interpolates = autograd.Variable(interpolates, requires_grad=True)
    disc_interpolates = netD(interpolates)
    gradients = autograd.grad(outputs=disc_interpolates, inputs=interpolates,
                              grad_outputs=torch.ones(disc_interpolates.size()).cuda() if use_cuda else torch.ones(disc_interpolates.size()),
                              create_graph=True, retain_graph=True, only_inputs=True)[0]
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean() * LAMBDA


netG = Generator()
netD = Discriminator()
if use_cuda:
    netD = nn.DataParallel(netD.cuda())
    netG = nn.DataParallel(netG.cuda())
optimizerD = optim.Adam(netD.parameters(), lr=1e-2, betas=(0.5, 0.9))
optimizerG = optim.Adam(netG.parameters(), lr=1e-2, betas=(0.5, 0.9))
one = torch.tensor(1.0)
mone = one * -1
if use_cuda:
    one, mone = one.cuda(), mone.cuda()
data = inf_train_gen()
critic_steps = 0

for iteration in range(args.iters):
    for p in netD.parameters():
        p.requires_grad = True
    for iter_d in range(args.critic_iters):
        _data = next(data)
        real_data_v = autograd.Variable(_data.cuda() if use_cuda else _data)
        netD.zero_grad()
        D_real = netD(real_data_v).mean()
        D_real.backward(mone)
        noise = torch.randn(args.batch_size, 2)
        if use_cuda:
            noise = noise.cuda()
        with torch.no_grad():
            noisev = autograd.Variable(noise)
            fake = autograd.Variable(netG(noisev, real_data_v).data)
        D_fake = netD(fake).mean()
        D_fake.backward(one)
        gradient_penalty = calc_gradient_penalty(netD, real_data_v.data, fake.data)
        gradient_penalty.backward()
        D_cost = D_fake - D_real + gradient_penalty
        Wasserstein_D = D_real - D_fake
        optimizerD.step()
        critic_steps += 1
        if critic_steps % 4 == 0:
            for p in netD.parameters():
                p.data.clamp_(-args.clip * 10, args.clip * 10)
    for p in netD.parameters():
        p.requires_grad = False
    netG.zero_grad()
    _data = next(data)
    real_data_v = _data.cuda() if use_cuda else _data
    noise = torch.randn(args.batch_size - 3, 2)               # a shorter batch
    noise = noise.cuda() if use_cuda else noise
    fake = netG(noise, real_data_v[:args.batch_size - 3])
    G = netD(fake).mean()
    G.backward(mone)
    optimizerG.step()
    print('iter %d disc cost %.5f gen cost %.5f wasserstein %.5f gp %.5f' % (iteration, D_cost.cpu().item(), -G.cpu().item(), Wasserstein_D.item(), gradient_penalty.item()))
os.makedirs('tmp', exist_ok=True)
torch.save({'G': netG.state_dict(), 'D': netD.state_dict()}, 'tmp/nets.pth')
