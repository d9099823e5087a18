from . import pretrain
from .loop import train
