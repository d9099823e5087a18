"""The model, for both modes. Nothing in it knows on how many devices it runs."""

from torch import Tensor, nn


class ConvNet(nn.Module):
    """Three convolutions for small images.

    GroupNorm looks at each row alone. BatchNorm would look at the rows of one device, in both modes.
    """

    def __init__(self, classes: int = 10, width: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.GroupNorm(4, 2 * width),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.head = nn.Linear(2 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (rows, 3, height, width) to logits (rows, classes)."""
        return self.head(self.features(images).flatten(1))
