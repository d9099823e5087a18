"""Data sets of the signatures of torchvision's, of random pixels."""

import os
from pathlib import Path

import numpy
import torch
from PIL import Image


class _Fake(torch.utils.data.Dataset):
    shape, classes_, name = (32, 32, 3), 10, "cifar"

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        drawn = numpy.random.RandomState(0 if train else 1)
        count = int(os.environ.get("FAKE_TRAIN", 40) if train else os.environ.get("FAKE_TEST", 20))
        self.data = drawn.randint(0, 256, (count, *self.shape)).astype("uint8")
        self.targets = drawn.randint(0, self.classes_, count).tolist()
        self.train, self.transform, self.target_transform = train, transform, target_transform
        self.classes = [str(each) for each in range(self.classes_)]
        self.labels = numpy.array(self.targets)
        marker = Path(root) / f"{self.name}-{train}"
        if download and not marker.exists():
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.write_text("here\n")

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, place):
        image, target = Image.fromarray(self.data[place]), self.targets[place]
        image = self.transform(image) if self.transform else image
        return image, self.target_transform(target) if self.target_transform else target


class CIFAR10(_Fake):
    pass


class CIFAR100(_Fake):
    classes_, name = 100, "cifar100"


class MNIST(_Fake):
    shape, name = (28, 28), "mnist"


class SVHN(_Fake):
    name = "svhn"

    def __init__(self, root, split="train", transform=None, target_transform=None, download=False):
        super().__init__(root, split == "train", transform, target_transform, download)
