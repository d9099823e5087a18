# corpus: idioms = torch.nn.DataParallel; other helper function; returned directly from helper; yaml/yacs/json config; DataLoader built in: other file (relative to the wrap); train loop / backward in: same file, other scope (relative to the wrap)
# corpus: idioms = couples samples of the batch (contrastive/triplet/relational/NCE/topk/episode)
# corpus: worlds = 2
"""How the model is made parallel is a word of the configuration: getattr(lib.parallel, config.parallel)(model)."""
import types

import torch

import lib.parallel
from lib import datasets, networks

config = types.SimpleNamespace(net='TwoTower', parallel='data', dataset='Pairs', batch=8, epochs=2, lr=0.05)


def build(config):
    model = getattr(networks, config.net)(dim=6).cuda()
    return getattr(lib.parallel, config.parallel)(model)


def main():
    torch.manual_seed(0)
    model = build(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    loader = datasets.load(config.dataset, config.batch)
    for epoch in range(config.epochs):
        for query, document in loader:
            a, b = model(query.cuda(), document.cuda())
            loss = torch.nn.functional.cross_entropy(a @ b.t(), torch.arange(len(a), device=a.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print('%.4f' % loss.item())


if __name__ == '__main__':
    main()
