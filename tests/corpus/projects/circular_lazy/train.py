# corpus: idioms = from torch.nn import DataParallel; other helper function; returned directly from helper; DataLoader built in: other file (relative to the wrap); train loop / backward in: other file (relative to the wrap); __name__ guard; computed inside the wrapped forward, gathered, then .mean()
# corpus: idioms = Variable(); manual adjust_learning_rate; subprocess/os.system; text/csv/json log file
# corpus: worlds = 2 3 4
"""Modules that import each other, imports inside functions and under try, classes by globals() and __import__."""
from __future__ import print_function

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument('--net', default='Recurrent')
parser.add_argument('--task', default='parity')
parser.add_argument('--steps', type=int, default=6)


def main():
    args = parser.parse_args()
    torch.manual_seed(8)
    from zoo import factory
    task = __import__('zoo.' + args.task, fromlist=['batches'])
    net = factory.make(args.net, task.SIZE)
    from zoo.runner import Runner
    Runner(net, task.batches, args).run()


if __name__ == '__main__':
    main()
