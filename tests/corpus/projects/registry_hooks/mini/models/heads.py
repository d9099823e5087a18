import torch.nn as nn
import torch.nn.functional as F

from ..registry import MODELS


@MODELS.register
class BoxHead(nn.Module):
    def __init__(self, channels, weight):
        super().__init__()
        self.cls = nn.Linear(channels, 3)
        self.reg = nn.Linear(channels, 4)
        self.weight = weight

    def forward(self, x):
        return self.cls(x), self.reg(x)

    def loss(self, scores, boxes, data):
        positive = data['label'] > 0
        reg = F.smooth_l1_loss(boxes[positive], data['box'][positive], reduction='sum')
        return {
            'loss_cls': F.cross_entropy(scores, data['label']),
            'loss_reg': self.weight * reg / positive.sum().clamp(min=1),
        }
