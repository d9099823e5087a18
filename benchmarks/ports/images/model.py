"""Residual nets with bottlenecks: ResNet-50, and a small one that a processor trains."""

import torch.nn as nn
import torch.nn.functional as F


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        outside = 4 * width
        self.conv1 = nn.Conv2d(inside, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outside, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outside)
        self.shortcut = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        return F.relu(self.bn3(self.conv3(out)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, depths, width, classes):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks, inside = [], width
        for stage, depth in enumerate(depths):
            for place in range(depth):
                stride = 2 if stage and not place else 1
                blocks.append(Bottleneck(inside, width * 2**stage, stride))
                inside = 4 * width * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inside, classes)

    def forward(self, x):
        out = self.blocks(self.stem(x))
        return self.fc(out.mean((2, 3)))


def make_net(name):
    if name == "resnet50":
        return ResNet([3, 4, 6, 3], 64, 1000)
    return ResNet([1, 1, 1], 8, 10)
