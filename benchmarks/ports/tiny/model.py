"""53 tiny layers, as many as a ResNet-50 has: what a step costs besides arithmetic."""

import torch.nn as nn


def net(layers=53, width=8):
    parts = [nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    for _ in range(layers - 2):
        parts += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
