"""CIFAR-shaped images that need no download: ten blurred patterns under noise, 3 x 32 x 32."""

import torch
from torch.utils.data import Dataset


class RandomCrop:
    def __init__(self, size, padding):
        self.size = size
        self.padding = padding

    def __call__(self, image):
        image = torch.nn.functional.pad(image, [self.padding] * 4)
        top, left = torch.randint(0, 2 * self.padding + 1, (2,)).tolist()
        return image[:, top:top + self.size, left:left + self.size]


class RandomHorizontalFlip:
    def __call__(self, image):
        return image.flip(2) if torch.rand(1).item() < 0.5 else image


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class SyntheticCifar(Dataset):
    classes = 10

    def __init__(self, length, train, transform=None):
        patterns = torch.randn(self.classes, 3, 4, 4, generator=torch.Generator().manual_seed(0))
        patterns = torch.nn.functional.interpolate(patterns, size=(32, 32), mode="bilinear")
        generator = torch.Generator().manual_seed(1 if train else 2)
        self.targets = torch.randint(0, self.classes, (length,), generator=generator)
        noise = torch.randn(length, 3, 32, 32, generator=generator)
        self.images = patterns[self.targets] + noise
        self.transform = transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        image = self.images[index]
        if self.transform is not None:
            image = self.transform(image)
        return image, self.targets[index]


def train_set():
    transform = Compose([RandomCrop(32, padding=4), RandomHorizontalFlip()])
    return SyntheticCifar(198, train=True, transform=transform)


def test_set():
    return SyntheticCifar(90, train=False)
