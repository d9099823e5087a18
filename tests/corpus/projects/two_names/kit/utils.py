import random

import torch

COUNT = 0


def set_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)


def draw():
    return round(random.random(), 6)


def log(text):
    global COUNT
    COUNT += 1
    with open('log_%s.txt' % __name__, 'a') as f:
        f.write('%d %s\n' % (COUNT, text))
