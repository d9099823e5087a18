"""A small DCGAN for 16 x 16 images."""

import torch.nn as nn


class Generator(nn.Module):
    def __init__(self, noise=32, channels=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConvTranspose2d(noise, 2 * channels, 4, 1, 0, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.ReLU(True),
            nn.ConvTranspose2d(2 * channels, channels, 4, 2, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(True),
            nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, channels, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2),
            nn.Conv2d(channels, 2 * channels, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.LeakyReLU(0.2),
            nn.Conv2d(2 * channels, 1, 4, 1, 0, bias=False),
        )

    def forward(self, x):
        return self.net(x).view(-1)
