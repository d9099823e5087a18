"""When samples load alone and batches keep their rows apart; and when they do not."""

from __future__ import annotations

import pytest

from tests.codemod.scripts import facts_of

HEAD = """
import pickle, random
import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset
from torchvision import datasets, transforms
net = torch.nn.DataParallel(Net())
"""
LOOP = "\nfor x, y in loader:\n    out = net(x.cuda())\n    criterion(out, y)\n"
ROWS = """
class Rows(Dataset):
    def __init__(self, files, transform=None, scale=1):
        self.files = files
        self.transform = transform
    def load(self, i):
        return cv2.imread(self.files[i])
    def __getitem__(self, i):
        image = self.load(i)
        if self.transform:
            image = self.transform(image)
        return image, len(self.files[i])
"""
FIXED = "tf = transforms.Compose([transforms.Resize(8), transforms.ToTensor()])\n"


def stopper(text: str, **modules: str) -> str:
    return facts_of(HEAD + text + LOOP, **modules).shard_stopper or ""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ROWS + "loader = DataLoader(Rows(files), 8)", id="a method of its own, no transform"),
        pytest.param(ROWS + FIXED + "loader = DataLoader(Rows(files, tf), 8)", id="a fixed transform"),
        pytest.param(
            ROWS + FIXED + "loader = DataLoader(Subset(Rows(files, transform=tf), idx), 8)", id="by keyword"
        ),
        pytest.param(
            ROWS.replace("cv2.imread(self.files[i])", "self.files.get(i, 0)")
            + "loader = DataLoader(Rows(files), 8)",
            id="a dict's get",
        ),
        pytest.param(
            "class Scale:\n    def __mul__(self, x):\n        return x * 2\n"
            + ROWS.replace("self.files = files", "self.files, self.twice = files, Scale()").replace(
                "len(self.files[i])", "self.twice * image"
            )
            + "loader = DataLoader(Rows(files), 8)",
            id="an operator that computes",
        ),
        pytest.param(
            "def halve(x):\n    return x / 2\n" + ROWS + "loader = DataLoader(Rows(files, halve), 8)",
            id="a function of the script",
        ),
        pytest.param(
            FIXED + "loader = DataLoader(datasets.CIFAR10('d', train=first, transform=tf), 8)", id="CIFAR10"
        ),
        pytest.param(
            "train, test = TensorDataset(a, b), Noise()\nloader = DataLoader(train, 8)", id="out of a tuple"
        ),
        pytest.param(
            "def sets():\n    train = TensorDataset(a, b)\n    return train, TensorDataset(c, d)\n"
            "train, test = sets()\nloader = DataLoader(train, 8)",
            id="out of a function",
        ),
        pytest.param(
            ROWS.replace(
                "return image, len(self.files[i])",
                "row = {}\n        row['x'] = image\n        return [row, 1]",
            )
            + "loader = DataLoader(Rows(files), 8)",
            id="a dict that it fills",
        ),
    ],
)
def test_samples_that_load_alone(text: str) -> None:
    assert stopper(text) == ""


def test_a_data_set_of_another_module() -> None:
    module = "import cv2\nfrom torch.utils.data import Dataset\n" + ROWS
    assert stopper("from rows import Rows\nloader = DataLoader(Rows(files), 8)", rows=module) == ""
    changed = module.replace("image = self.load(i)", "image = self.load(random.randrange(i))")
    assert "may draw" in stopper("from rows import Rows\nloader = DataLoader(Rows(files), 8)", rows=changed)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            ROWS
            + "tf = transforms.Compose([transforms.RandomCrop(8)])\nloader = DataLoader(Rows(files, tf), 8)",
            id="a random transform",
        ),
        pytest.param(ROWS + "loader = DataLoader(Rows(files, unknown), 8)", id="an unknown transform"),
        pytest.param(
            ROWS + "data = Rows(files)\ndata.transform = other\nloader = DataLoader(data, 8)", id="set later"
        ),
        pytest.param(
            "def jitter(x):\n    return x + random.random()\n"
            + ROWS
            + "loader = DataLoader(Rows(files, jitter), 8)",
            id="a function that draws",
        ),
        pytest.param(
            ROWS.replace("return cv2", "self.seen = i\n        return cv2")
            + "loader = DataLoader(Rows(files), 8)",
            id="a trace",
        ),
        pytest.param(
            ROWS.replace("cv2.imread(self.files[i])", "pickle.load(self.files)")
            + "loader = DataLoader(Rows(files), 8)",
            id="the next object of an open file",
        ),
        pytest.param("loader = DataLoader(datasets.CIFAR10('d', transform=tf), 8)", id="unknown transform"),
        pytest.param("loader = DataLoader(datasets.FakeData(9), 8)", id="draws its images"),
        pytest.param(
            "train, test = TensorDataset(a, b), Noise()\nloader = DataLoader(test, 8)",
            id="the other of a tuple",
        ),
        pytest.param(
            "train, test = TensorDataset(a, b), Noise()\ntrain = Noise()\nloader = DataLoader(train, 8)",
            id="bound again",
        ),
        pytest.param(
            "def sets(flag):\n    if flag:\n        return TensorDataset(a, b)\n    return Noise()\n"
            "loader = DataLoader(sets(1), 8)",
            id="one of two",
        ),
        pytest.param(
            ROWS.replace("return cv2", "self.seen.add(i)\n        return cv2")
            + "loader = DataLoader(Rows(files), 8)",
            id="a call for nothing but its trace",
        ),
        pytest.param(
            ROWS.replace("self.load(i)", "self.files[i]\n        image -= image.mean()")
            + "loader = DataLoader(Rows(files), 8)",
            id="written to in place",
        ),
        pytest.param(
            "def norm(x):\n    x -= 1\n    x *= 2\n    return x\n"
            + ROWS
            + "loader = DataLoader(Rows(files, norm), 8)",
            id="a function that writes to what it is given",
        ),
        pytest.param(
            ROWS.replace(
                "def load", "@property\n    def n(self):\n        return random.random()\n    def load"
            )
            + "loader = DataLoader(Rows(files), 8)",
            id="a property that draws",
        ),
        pytest.param(
            ROWS
            + "class Noisy(Dataset):\n    def __getitem__(self, i):\n        return random.random()\n"
            + "loader = DataLoader(Rows(Noisy()), 8)",
            id="a data set around one that draws",
        ),
        pytest.param(
            "train = datasets.CIFAR10('d', transform=transforms.RandomCrop(8))\n"
            + ROWS
            + "loader = DataLoader(Rows(train), 8)",
            id="a data set around one of torchvision that draws",
        ),
        pytest.param(
            "class Jitter:\n    def __mul__(self, x):\n        return x * random.random()\n"
            + ROWS.replace("self.files = files", "self.files, self.jitter = files, Jitter()").replace(
                "len(self.files[i])", "self.jitter * image"
            )
            + "loader = DataLoader(Rows(files), 8)",
            id="an operator that draws",
        ),
        pytest.param(
            "class Seen:\n    def __contains__(self, i):\n        self.last = i\n        return True\n"
            + ROWS.replace("self.files = files", "self.files, self.seen = files, Seen()").replace(
                "len(self.files[i])", "i in self.seen"
            )
            + "loader = DataLoader(Rows(files), 8)",
            id="a membership test that leaves a trace",
        ),
        pytest.param(
            ROWS.replace("cv2.imread(self.files[i])", "self.queue.get()")
            + "loader = DataLoader(Rows(files), 8)",
            id="the next item of a queue",
        ),
        pytest.param(
            ROWS.replace("cv2.imread(self.files[i])", "self.queue.get(True, 5)")
            + "loader = DataLoader(Rows(files), 8)",
            id="the next item of a queue, with patience",
        ),
        pytest.param(
            "class Augment:\n    def crop(self, x):\n        return x[random.randrange(3):]\naugment = Augment()\n"
            + ROWS.replace("cv2.imread(self.files[i])", "augment.crop(cv2.imread(self.files[i]))")
            + "loader = DataLoader(Rows(files), 8)",
            id="a method that is called as one of tensors is",
        ),
    ],
)
def test_samples_that_may_draw_or_leave_a_trace(text: str) -> None:
    assert "may draw random numbers" in stopper(text)


PAIRS = "data = TensorDataset(a, b)\nloader = DataLoader(data, 8, collate_fn=pad)\n"


@pytest.mark.parametrize(
    "body",
    [
        "xs, ys = zip(*batch)\n    return torch.stack(xs), torch.LongTensor(ys)",
        "xs = [row[0] for row in batch]\n    ys = [int(row[1]) for row in batch]\n"
        "    return torch.stack(xs, 0).float(), torch.tensor(ys, dtype=torch.long)",
        "x = torch.from_numpy(np.stack([b[0] for b in batch]))\n    return {'x': x, 'y': x}",
    ],
)
def test_a_collate_function_that_takes_each_sample_alone(body: str) -> None:
    assert stopper(f"def pad(batch):\n    {body}\n" + PAIRS) == ""


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            "xs, ys = zip(*batch)\n    return torch.nn.utils.rnn.pad_sequence(xs), torch.tensor(ys)",
            id="pads",
        ),
        pytest.param(
            "n = max(len(b[0]) for b in batch)\n    return torch.stack([b[0][:n] for b in batch]), 1",
            id="longest",
        ),
        pytest.param(
            "return torch.cat([b[0] for b in batch]), torch.tensor([b[1] for b in batch])", id="joined"
        ),
        pytest.param(
            "return [b[0] for b in batch], torch.tensor([b[1] for b in batch])", id="a list of tensors"
        ),
        pytest.param(
            "batch = [b for b in batch if b is not None]\n    return torch.stack(batch), batch", id="filters"
        ),
        pytest.param("batch.sort(key=len)\n    return torch.stack(batch), 1", id="sorts"),
        pytest.param("return torch.stack([b[0] * random.random() for b in batch]), 1", id="draws"),
        pytest.param("return torch.stack([b[0] - batch[0][0] for b in batch]), 1", id="looks at another"),
        pytest.param("return torch.stack([b[0] for b in batch], 1), 1", id="rows along another dimension"),
    ],
)
def test_a_collate_function_that_mixes_samples(body: str) -> None:
    assert "collate_fn" in stopper(f"def pad(batch):\n    {body}\n" + PAIRS)
