"""Ray Train's settings."""

from dataclasses import dataclass


@dataclass
class ScalingConfig:
    num_workers: int
    use_gpu: bool
