"""CIFAR-shaped images that need no download: ten patterns under noise, with crops and flips."""

import random

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset


def crop_and_flip(image, padding=4):
    padded = F.pad(image, [padding] * 4)
    top, left = random.randint(0, 2 * padding), random.randint(0, 2 * padding)
    image = padded[:, top : top + 32, left : left + 32]
    return image.flip(2) if random.random() < 0.5 else image


class SyntheticCifar(Dataset):
    def __init__(self, length, classes=10):
        generator = torch.Generator().manual_seed(1)
        patterns = torch.randint(0, 256, (classes, 3, 4, 4), generator=generator)
        patterns = patterns.repeat_interleave(8, 2).repeat_interleave(8, 3)
        self.targets = torch.randint(0, classes, (length,), generator=generator)
        noise = torch.randint(0, 256, (length, 3, 32, 32), generator=generator, dtype=torch.uint8)
        self.images = ((patterns[self.targets] + noise) // 2).to(torch.uint8)

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        image = self.images[index].float().div(127.5).sub(1)
        return crop_and_flip(image), int(self.targets[index])
