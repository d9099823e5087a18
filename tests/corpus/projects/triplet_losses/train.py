# corpus: idioms = nn.DataParallel; DP(...).cuda(); name = DP(Constructor(...)); couples samples of the batch (contrastive/triplet/relational/NCE/topk/episode); custom sampler class; sampler=; parameters trained outside the wrapper (center loss, margin head, KD adaptors, top_layer); several optimizers; grads or params edited between backward and step (rescale, binarise, AWP, ortho, accumulate EMA)
# corpus: idioms = train loop / backward in: other file (relative to the wrap); DataLoader built in: other file (relative to the wrap); clip_grad; text/csv/json log file; order, crops or lengths drawn from np.random / random in dataset, sampler or loop; np.random/random seed
# corpus: worlds = 2 3
# corpus: helpers = WholeBatchParallel
"""Re-identification: losses in a package, a warm-up and a training loop that are both called train."""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn

from engine import pretrain, train
from gallery import make_loader
from losses import make_loss
from net import Embedder

parser = argparse.ArgumentParser()
parser.add_argument('--loss', default='triplet+center')
parser.add_argument('--warmup', type=int, default=1)
parser.add_argument('--epochs', type=int, default=2)
parser.add_argument('--seed', type=int, default=1)


def main(opt):
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(opt.seed)
    loader, names = make_loader(p=4, k=4)
    model = nn.DataParallel(Embedder(8, len(names))).cuda()
    criterion, center = make_loss(opt.loss, len(names))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    optimizer_center = torch.optim.SGD(center.parameters(), lr=0.5)
    for epoch in range(opt.warmup):
        pretrain.train(model, loader, optimizer)
    for epoch in range(opt.epochs):
        train(model, loader, criterion, center, optimizer, optimizer_center, epoch)
    torch.save({'model': model.module.state_dict(), 'center': center.state_dict()}, 'reid.pth')


if __name__ == '__main__':
    main(parser.parse_args())
