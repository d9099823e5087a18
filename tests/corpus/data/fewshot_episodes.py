# corpus: idioms = batch_sampler=; custom sampler class; couples samples of the batch (contrastive/triplet/relational/NCE/topk/episode); submodule only (model.features / model.encoder), head outside; dict or list of loaders; args.batch_size used outside the DataLoader (loss mask, steps, lr, asserts, meters); best selection; Variable(); order, crops or lengths drawn from np.random / random in dataset, sampler or loop
# corpus: worlds = 2 3 4
"""Prototypical networks: episodes from a batch sampler, only the encoder is wrapped, the metric is outside."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument('--way', type=int, default=3)
parser.add_argument('--shot', type=int, default=2)
parser.add_argument('--query', type=int, default=3)
parser.add_argument('--max-epoch', type=int, default=3)
args = parser.parse_args()
np.random.seed(5)
torch.manual_seed(5)


class CategoriesSampler():
    def __init__(self, label, n_batch, n_cls, n_per):
        self.n_batch, self.n_cls, self.n_per = n_batch, n_cls, n_per
        label = np.array(label)
        self.m_ind = [torch.from_numpy(np.argwhere(label == i).reshape(-1)) for i in range(max(label) + 1)]

    def __len__(self):
        return self.n_batch

    def __iter__(self):
        for _ in range(self.n_batch):
            batch = []
            for c in torch.randperm(len(self.m_ind))[:self.n_cls]:
                l = self.m_ind[c]
                batch.append(l[torch.from_numpy(np.random.permutation(len(l))[:self.n_per])])
            yield torch.stack(batch).t().reshape(-1)


def make(n_cls, shift):
    y = torch.arange(n_cls * 8) % n_cls
    x = torch.randn(n_cls * 8, 1, 6, 6) + torch.randn(n_cls, 1, 6, 6)[y] + shift
    return TensorDataset(x, y)


class Convnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.temperature = nn.Parameter(torch.tensor(1.))

    def forward(self, x):
        return self.encoder(x)


trainset, valset = make(6, 0.), make(4, .2)
n_per = args.shot + args.query
loaders = {
    'train': DataLoader(trainset, batch_sampler=CategoriesSampler(trainset.tensors[1], 6, args.way, n_per)),
    'val': DataLoader(valset, batch_sampler=CategoriesSampler(valset.tensors[1], 4, args.way, n_per)),
}
model = Convnet().cuda()
model.encoder = torch.nn.DataParallel(model.encoder, device_ids=list(range(torch.cuda.device_count())))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)


def run(mode):
    model.train(mode == 'train')
    accs, tl = [], 0.
    p = args.shot * args.way
    for i, batch in enumerate(loaders[mode], 1):
        data = Variable(batch[0].cuda())
        data_shot, data_query = data[:p], data[p:]
        proto = model(data_shot).reshape(args.shot, args.way, -1).mean(dim=0)
        label = torch.arange(args.way).repeat(args.query).type(torch.cuda.LongTensor)
        logits = -torch.cdist(model(data_query), proto) * model.temperature
        loss = F.cross_entropy(logits, label)
        if mode == 'train':
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        tl += loss.item()
        accs.append((logits.argmax(1) == label).float().mean().item())
        proto = None
        logits = None
        loss = None
    return tl / i, np.mean(accs)


trlog = {'max_acc': -1.0}
for epoch in range(1, args.max_epoch + 1):
    tl, ta = run('train')
    with torch.no_grad():
        vl, va = run('val')
    lr_scheduler.step()
    print('epoch {}, train, loss={:.4f} acc={:.4f} | val, loss={:.4f} acc={:.4f}'.format(epoch, tl, ta, vl, va))
    if va > trlog['max_acc']:
        trlog['max_acc'] = va
        torch.save(model.state_dict(), 'max-acc.pth')
