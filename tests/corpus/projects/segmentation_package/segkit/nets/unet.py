import torch
import torch.nn as nn
import torch.nn.functional as F

from .blocks import ConvBlock


class UNet(nn.Module):
    def __init__(self, classes, width=6):
        super().__init__()
        self.down = ConvBlock(1, width)
        self.mid = ConvBlock(width, width)
        self.up = ConvBlock(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skip = self.down(x)
        x = self.mid(F.max_pool2d(skip, 2))
        x = F.interpolate(x, scale_factor=2)
        return self.head(self.up(torch.cat([x, skip], 1)))
