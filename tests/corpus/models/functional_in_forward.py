# corpus: idioms = functional data_parallel; len(gpu_ids)/num_gpus from config; several models wrapped in one script; two or more backward() before one step, or forward twice before backward; device_ids from config/args/variable; function main/train/run; parameters without gradient on a step (optional heads, toggled requires_grad, unused branches); 'cuda:0' literal; p.data edits outside optimizer; .cuda(); Variable(); several optimizers; torch.rand* inside the train step
# corpus: worlds = 2 3
"""WGAN with clipping, of 2017: each network calls data_parallel in its own forward."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.parallel
import torch.optim as optim
from torch.autograd import Variable

parser = argparse.ArgumentParser()
parser.add_argument('--batchSize', type=int, default=9)
parser.add_argument('--nz', type=int, default=5)
parser.add_argument('--ngpu', type=int, default=torch.cuda.device_count())
parser.add_argument('--niter', type=int, default=2)
parser.add_argument('--Diters', type=int, default=2)
parser.add_argument('--clamp', type=float, default=0.05)
parser.add_argument('--cuda', action='store_true', default=True)


class DCGAN_D(nn.Module):
    def __init__(self, ndf, ngpu):
        super(DCGAN_D, self).__init__()
        self.ngpu = ngpu
        main = nn.Sequential()
        main.add_module('initial_conv', nn.Conv2d(1, ndf, 4, 2, 1, bias=False))
        main.add_module('relu', nn.LeakyReLU(0.2, inplace=True))
        main.add_module('norm', nn.BatchNorm2d(ndf))
        main.add_module('final_conv', nn.Conv2d(ndf, 1, 3, 1, 0, bias=False))
        self.main = main

    def forward(self, input):
        if isinstance(input.data, torch.cuda.FloatTensor) and self.ngpu > 1:
            output = nn.parallel.data_parallel(self.main, input, range(self.ngpu))
        else:
            output = self.main(input)
        output = output.mean(0)
        return output.view(-1).mean()


class DCGAN_G(nn.Module):
    def __init__(self, nz, ngf, ngpu):
        super(DCGAN_G, self).__init__()
        self.ngpu = ngpu
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, input):
        if input.is_cuda and self.ngpu > 1:
            output = nn.parallel.data_parallel(self.main, input, range(self.ngpu))
        else:
            output = self.main(input)
        return output


def main():
    opt = parser.parse_args()
    random.seed(3)
    torch.manual_seed(3)
    g = torch.Generator().manual_seed(1)
    data = torch.rand(43, 1, 8, 8, generator=g).mul(2).sub(1)
    dataloader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=opt.batchSize, shuffle=True)
    netG = DCGAN_G(opt.nz, 4, opt.ngpu)
    netD = DCGAN_D(4, opt.ngpu)
    input = torch.FloatTensor(opt.batchSize, 1, 8, 8)
    noise = torch.FloatTensor(opt.batchSize, opt.nz, 1, 1)
    one = torch.tensor(1.)
    mone = one * -1
    if opt.cuda:
        netD.cuda()
        netG.cuda()
        input = input.cuda()
        one, mone = one.cuda(), mone.cuda()
        noise = noise.cuda()
    optimizerD = optim.RMSprop(netD.parameters(), lr=5e-3)
    optimizerG = optim.RMSprop(netG.parameters(), lr=5e-3)
    gen_iterations = 0
    for epoch in range(opt.niter):
        data_iter = iter(dataloader)
        i = 0
        while i < len(dataloader):
            for p in netD.parameters():
                p.requires_grad = True
            j = 0
            while j < opt.Diters and i < len(dataloader):
                j += 1
                for p in netD.parameters():
                    p.data.clamp_(-opt.clamp, opt.clamp)
                real_cpu, = next(data_iter)
                i += 1
                netD.zero_grad()
                inputv = Variable(input.resize_as_(real_cpu.cuda()).copy_(real_cpu))
                errD_real = netD(inputv)
                errD_real.backward(one)
                noise.resize_(real_cpu.size(0), opt.nz, 1, 1).normal_(0, 1)
                with torch.no_grad():
                    fake = netG(Variable(noise)).data
                errD_fake = netD(Variable(fake))
                errD_fake.backward(mone)
                errD = errD_real - errD_fake
                optimizerD.step()
            for p in netD.parameters():
                p.requires_grad = False
            netG.zero_grad()
            noise.resize_(opt.batchSize, opt.nz, 1, 1).normal_(0, 1)
            errG = netD(netG(Variable(noise)))
            errG.backward(one)
            optimizerG.step()
            gen_iterations += 1
            print('[%d/%d][%d] Loss_D: %.5f Loss_G: %.5f' % (epoch, opt.niter, gen_iterations, errD.item(), errG.item()))
        torch.save(netG.state_dict(), 'netG_epoch_%d.pth' % epoch)


if __name__ == '__main__':
    main()
