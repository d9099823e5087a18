# corpus: idioms = torch.nn.DataParallel; self.attr = DP(...); buffer or counter written in forward; yaml/yacs/json config; from x import *; DataLoader built in: other file (relative to the wrap); train loop / backward in: same scope (relative to the wrap)
# corpus: idioms = order, crops or lengths drawn from np.random / random in dataset, sampler or loop; np.random/random seed
# corpus: worlds = 2 3 4
"""The registry hands out a model whose forward draws from numpy and counts: only the configuration says so."""
import json

import numpy as np
import torch
import torch.nn.functional as F

from nets import NETS
from pictures import make_loader

CONFIG = json.loads('{"net": {"name": "StochasticDepth", "drop": 0.4}, "seed": 3, "epochs": 2}')


class Experiment:
    def __init__(self, config):
        np.random.seed(config['seed'])
        torch.manual_seed(config['seed'])
        options = dict(config['net'])
        self.net = torch.nn.DataParallel(NETS.get(options.pop('name'))(**options).cuda())
        self.loader = make_loader()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def run(self, epochs):
        for epoch in range(epochs):
            for x, y in self.loader:
                loss = F.cross_entropy(self.net(x.cuda()), y.cuda())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                print('%.5f' % loss.item(), np.random.randint(100))
        print('drawn', float(self.net.module.drawn), 'next', np.random.rand())


if __name__ == '__main__':
    Experiment(CONFIG).run(CONFIG['epochs'])
