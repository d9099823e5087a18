import torch.nn as nn

from ..registry import MODELS


@MODELS.register
class TwoStage(nn.Module):
    def __init__(self, channels, head):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, channels, 3), nn.BatchNorm2d(channels), nn.ReLU())
        self.neck = nn.AdaptiveAvgPool2d(1)
        self.head = MODELS.build(head, channels=channels)

    def forward(self, img, data, return_loss=True):
        scores, boxes = self.head(self.neck(self.backbone(img)).flatten(1))
        if return_loss:
            return {name: value.view(1) for name, value in self.head.loss(scores, boxes, data).items()}
        return scores, boxes
