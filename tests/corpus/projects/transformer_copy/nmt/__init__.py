from .batches import *
from .model import make_model
from .optim import *
from .smoothing import LabelSmoothing
