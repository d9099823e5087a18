# corpus: idioms = nn.DataParallel; function main/train/run; rebinds the same name; DataLoader built in: other file (relative to the wrap); train loop / backward in: other file (relative to the wrap); sys.stdout replaced; makedirs/mkdir; DP(...).cuda()
# corpus: idioms = optimizer step skipped on a value of the local loss; visdom; batch_sampler=; couples samples of the batch (contrastive/triplet/relational/NCE/topk/episode); text/csv/json log file; CUDA_VISIBLE_DEVICES set in the script; from x import *
# corpus: worlds = 2 3
"""Vehicle retrieval in several files: data, engine and logging are modules beside this one."""
import os
os.environ['CUDA_VISIBLE_DEVICES'] = '0,1,2'
import sys

import torch
import torch.nn as nn

from data import get_loader
from engine import *
from logutils import Logger, Plotter


def main():
    torch.manual_seed(6)
    sys.stdout = Logger('logs/train.log')
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5))
    model = nn.DataParallel(model).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    plotter = Plotter()
    for epoch in range(3):
        train_epoch(model, get_loader(), optimizer, epoch, plotter)
    save(model, 'logs/model.pth')
    print('points', plotter.count, 'skipped', SKIPPED)
    sys.stdout.close()


if __name__ == '__main__':
    main()
