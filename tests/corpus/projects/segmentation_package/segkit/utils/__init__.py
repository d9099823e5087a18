from .meters import AverageMeter, CSVWriter
from .metrics import *
from .misc import *
