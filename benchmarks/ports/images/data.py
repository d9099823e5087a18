"""ImageNet-shaped images that need no download: random resized crops and flips of noisy patterns, 112 x 112."""

import random

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset

SIZE, STORED = 112, 144
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def random_resized_crop(image):
    side = int(STORED * random.uniform(0.08, 1.0) ** 0.5)
    top, left = random.randint(0, STORED - side), random.randint(0, STORED - side)
    piece = image[:, top : top + side, left : left + side]
    return F.interpolate(piece[None], size=(SIZE, SIZE), mode="bilinear", align_corners=False)[0]


class SyntheticImages(Dataset):
    def __init__(self, length, classes=100, stored=512):
        generator = torch.Generator().manual_seed(1)
        self.images = torch.randint(0, 256, (stored, 3, STORED, STORED), generator=generator, dtype=torch.uint8)
        self.targets = torch.randint(0, classes, (stored,), generator=generator)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        image = random_resized_crop(self.images[index % len(self.images)].float().div(255))
        if random.random() < 0.5:
            image = image.flip(2)
        return (image - MEAN) / STD, int(self.targets[index % len(self.targets)])
