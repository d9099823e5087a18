# corpus: idioms = couples samples of the batch (contrastive/triplet/relational/NCE/topk/episode); batch_sampler=; lr_scheduler; best selection
# corpus: worlds = 2 3
"""Few-shot learning with prototypes: each batch is an episode of n-way k-shot, support first."""
import argparse
import os.path as osp

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class MiniImageNet(Dataset):
    def __init__(self, setname):
        rng = np.random.RandomState(len(setname))
        self.label = [c for c in range(6) for _ in range(9)]
        self.data = [torch.from_numpy(rng.randn(2, 5, 5).astype(np.float32) + 0.2 * c) for c in self.label]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i], self.label[i]


class CategoriesSampler():
    def __init__(self, label, n_batch, n_cls, n_per):
        self.n_batch, self.n_cls, self.n_per = n_batch, n_cls, n_per
        label = np.array(label)
        self.m_ind = [torch.from_numpy(np.argwhere(label == i).reshape(-1)) for i in range(max(label) + 1)]

    def __len__(self):
        return self.n_batch

    def __iter__(self):
        for i_batch in range(self.n_batch):
            batch = []
            classes = torch.randperm(len(self.m_ind))[:self.n_cls]
            for c in classes:
                l = self.m_ind[c]
                pos = torch.randperm(len(l))[:self.n_per]
                batch.append(l[pos])
            yield torch.stack(batch).t().reshape(-1)


class Convnet(nn.Module):
    def __init__(self, x_dim=2, hid_dim=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(x_dim, hid_dim, 3, padding=1), nn.BatchNorm2d(hid_dim), nn.ReLU(),
                                     nn.MaxPool2d(2), nn.Conv2d(hid_dim, 5, 2))

    def forward(self, x):
        return self.encoder(x).view(x.size(0), -1)


class Averager():
    def __init__(self):
        self.n, self.v = 0, 0

    def add(self, x):
        self.v = (self.v * self.n + x) / (self.n + 1)
        self.n += 1

    def item(self):
        return self.v


def count_acc(logits, label):
    return (torch.argmax(logits, dim=1) == label).type(torch.cuda.FloatTensor).mean().item()


def euclidean_metric(a, b):
    return -((a.unsqueeze(1) - b.unsqueeze(0)) ** 2).sum(dim=2)


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--max-epoch', type=int, default=3)
    parser.add_argument('--shot', type=int, default=2)
    parser.add_argument('--query', type=int, default=3)
    parser.add_argument('--train-way', type=int, default=4)
    parser.add_argument('--test-way', type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(9)
    trainset, valset = MiniImageNet('train'), MiniImageNet('val')
    train_loader = DataLoader(dataset=trainset, batch_sampler=CategoriesSampler(trainset.label, 4, args.train_way, args.shot + args.query))
    val_loader = DataLoader(dataset=valset, batch_sampler=CategoriesSampler(valset.label, 5, args.test_way, args.shot + args.query), pin_memory=True)

    model = Convnet().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    model = nn.DataParallel(model)
    trlog = {'train_loss': [], 'val_acc': [], 'max_acc': 0.0}

    for epoch in range(1, args.max_epoch + 1):
        model.train()
        tl, ta = Averager(), Averager()
        for i, batch in enumerate(train_loader, 1):
            data, _ = [_.cuda() for _ in batch]
            p = args.shot * args.train_way
            emb = model(data)
            proto = emb[:p].reshape(args.shot, args.train_way, -1).mean(dim=0)
            label = torch.arange(args.train_way).repeat(args.query).type(torch.cuda.LongTensor)
            logits = euclidean_metric(emb[p:], proto)
            loss = F.cross_entropy(logits, label)
            acc = count_acc(logits, label)
            print('epoch {}, train {}/{}, loss={:.4f} acc={:.4f}'.format(epoch, i, len(train_loader), loss.item(), acc))
            tl.add(loss.item())
            ta.add(acc)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            proto = None; logits = None; loss = None
        lr_scheduler.step()
        model.eval()
        va = Averager()
        for i, batch in enumerate(val_loader, 1):
            data, _ = [_.cuda() for _ in batch]
            p = args.shot * args.test_way
            data_shot, data_query = data[:p], data[p:]
            proto = model(data_shot).reshape(args.shot, args.test_way, -1).mean(dim=0)
            label = torch.arange(args.test_way).repeat(args.query).cuda()
            logits = euclidean_metric(model(data_query), proto)
            va.add(count_acc(logits, label))
        print('epoch {}, val acc={:.4f}'.format(epoch, va.item()))
        if va.item() > trlog['max_acc']:
            trlog['max_acc'] = va.item()
            torch.save(model.state_dict(), 'max-acc.pth')
        trlog['train_loss'].append(tl.item())
        trlog['val_acc'].append(va.item())
        torch.save(trlog, osp.join('.', 'trlog'))
