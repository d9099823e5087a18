"""A net that computes its loss itself, so that no output has to travel: the idiom of large output layers."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Tagger(nn.Module):
    def __init__(self, features=128, width=512, classes=2000):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(features, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x, y):
        logits = self.head(self.body(x))
        loss = F.cross_entropy(logits, y, label_smoothing=0.1)
        correct = (logits.argmax(1) == y).float().sum()
        return loss, correct


def class_of(x, classes=2000):
    """The label of made-up features."""
    return (x[:, :11] > 0).long().mul(2 ** torch.arange(11)).sum(1) % classes
