from .registry import NETS
from . import plain, stochastic
