import torch.nn as nn


class Embedder(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, dim))
        self.bnneck = nn.BatchNorm1d(dim)
        self.classifier = nn.Linear(dim, classes, bias=False)

    def forward(self, x):
        feat = self.body(x)
        if not self.training:
            return self.bnneck(feat)
        return self.classifier(self.bnneck(feat)), feat
