from ..registry import MODELS
from . import detectors, heads


def build_detector(cfg):
    return MODELS.build(cfg)
