"""Images of ImageNet's size that need no download, with random crops and flips: 0.6 MB each, 9.6 MB a batch of 16."""

import torch
from torch.utils.data import Dataset

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
DIFFERENT = 64  # pictures that are kept in memory; the samples are crops of them


class MadeUpImages(Dataset):
    def __init__(self, length, size=224, classes=10):
        generator = torch.Generator().manual_seed(1)
        edge = size + size // 7
        self.length, self.size = length, size
        self.targets = torch.randint(0, classes, (DIFFERENT,), generator=generator)
        patterns = torch.randint(0, 256, (classes, 3, 4, 4), generator=generator)
        patterns = torch.nn.functional.interpolate(patterns.float(), (edge, edge))
        noise = torch.randint(0, 256, (DIFFERENT, 3, edge, edge), generator=generator)
        self.pictures = ((patterns[self.targets] + noise) / 2).to(torch.uint8)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        picture = self.pictures[index % DIFFERENT]
        room = picture.shape[1] - self.size + 1
        top, left = torch.randint(room, (2,)).tolist()
        image = picture[:, top : top + self.size, left : left + self.size]
        if torch.rand(()) < 0.5:
            image = image.flip(2)
        return (image.float().div(255) - MEAN) / DEVIATION, int(self.targets[index % DIFFERENT])
