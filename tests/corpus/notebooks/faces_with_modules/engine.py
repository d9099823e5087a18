import json
import os

import torch
from torch import nn


def parallel(model):
    return nn.DataParallel(model).cuda()


class Meter:
    """Counts, and writes one file an epoch."""

    def __init__(self, name, folder="logs"):
        self.name, self.folder, self.right, self.seen = name, folder, 0, 0
        os.makedirs(folder, exist_ok=True)

    def add(self, logits, labels):
        self.right += (logits.argmax(1) == labels).sum().item()
        self.seen += len(labels)

    def show(self, epoch):
        print(self.name, epoch, "%d/%d" % (self.right, self.seen))
        with open(os.path.join(self.folder, "%s_%d.json" % (self.name, epoch)), "w") as file:
            json.dump({"right": self.right, "seen": self.seen}, file)
