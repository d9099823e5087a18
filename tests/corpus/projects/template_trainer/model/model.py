import torch.nn as nn
import torch.nn.functional as F

from base import BaseModel


class DigitModel(BaseModel):
    def __init__(self, num_classes=10):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.drop = nn.Dropout2d(0.3)
        self.fc = nn.Linear(6 * 9, num_classes)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.drop(self.conv(x)), 2))
        return F.log_softmax(self.fc(x.view(x.size(0), -1)), dim=1)
