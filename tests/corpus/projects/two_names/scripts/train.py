# corpus: idioms = nn.DataParallel; class method (__init__); self.attr = DP(...); DataLoader built in: same file, other scope (relative to the wrap); train loop / backward in: other file (relative to the wrap); from x import *; text/csv/json log file; 'cuda:0' literal
# corpus: worlds = 2 3 4
# corpus: helpers = WholeBatchDDP
"""kit.utils and utils are one file, loaded twice: each has its own counter and its own log."""
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(here))
sys.path.append(os.path.join(os.path.dirname(here), 'kit'))

import torch

from kit import utils
from kit.loop import Loop
import utils as helpers


def main():
    helpers.set_seed(4)
    utils.log('start')
    helpers.log('start of the other')
    Loop(torch.device('cuda:0')).run(2)
    print(utils is helpers, utils.COUNT, helpers.COUNT, helpers.draw())


if __name__ == '__main__':
    main()
