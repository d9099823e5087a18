# corpus: idioms = functional data_parallel
"""DCGAN of old: data_parallel inside of the model's own forward."""
import torch
import torch.nn as nn


class Discriminator(nn.Module):
    def __init__(self, ngpu):
        super().__init__()
        self.ngpu = ngpu
        self.main = nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64, 1), nn.Sigmoid())

    def forward(self, input):
        if self.ngpu > 1:
            return nn.parallel.data_parallel(self.main, input, range(self.ngpu)).view(-1)
        return self.main(input).view(-1)


netD = Discriminator(2).cuda()
optimizer = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
for step in range(8):
    loss = nn.functional.binary_cross_entropy(netD(torch.randn(8, 1, 8, 8).cuda()), torch.ones(8).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
