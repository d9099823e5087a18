import os
import random

import numpy as np
import torch


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def ensure_dir(path):
    if not os.path.exists(path):
        os.makedirs(path)


def adjust_learning_rate(optimizer, base, step, total, power=0.9):
    lr = base * (1 - step / total) ** power
    for group in optimizer.param_groups:
        group['lr'] = lr
    return lr
