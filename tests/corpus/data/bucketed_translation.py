# corpus: idioms = batch_sampler=; custom sampler class; collate_fn; order, crops or lengths drawn from np.random / random in dataset, sampler or loop; mean over a data-dependent count - full batch level (after gather); np.random/random seed; torch.manual_seed; DataLoader built in: same file, other scope (relative to the wrap)
# corpus: worlds = 2 3 4
"""Sequence transduction with buckets: batches of like lengths, padded to the longest of the batch."""
import argparse
import random

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument('--tokens', type=int, default=40, help='padded tokens in a batch')
parser.add_argument('--epochs', type=int, default=3)
parser.add_argument('--seed', type=int, default=1111)
args = parser.parse_args()

random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)
VOCAB = 17


class ParallelCorpus(Dataset):
    def __init__(self, n=45):
        self.pairs = []
        for _ in range(n):
            src = [random.randrange(1, VOCAB) for _ in range(random.randint(2, 11))]
            self.pairs.append((src, src[::-1]))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        src, trg = self.pairs[i]
        return torch.LongTensor(src), torch.LongTensor(trg)


class BucketBatchSampler(object):
    """Sort inside of pools, cut at a number of tokens, shuffle the batches."""

    def __init__(self, data, max_tokens, pool=20):
        self.lengths = [len(src) for src, _ in data.pairs]
        self.max_tokens, self.pool = max_tokens, pool

    def __iter__(self):
        order = np.random.permutation(len(self.lengths))
        batches = []
        for start in range(0, len(order), self.pool):
            batch, longest = [], 0
            for i in sorted(order[start:start + self.pool], key=lambda i: self.lengths[i]):
                longest = max(longest, self.lengths[i])
                if batch and longest * (len(batch) + 1) > self.max_tokens:
                    batches.append(batch)
                    batch, longest = [], self.lengths[i]
                batch.append(int(i))
            batches.append(batch)
        random.shuffle(batches)
        return iter(batches)


def pad_batch(pairs):
    srcs, trgs = zip(*pairs)
    T = max(len(s) for s in srcs)
    src = torch.zeros(len(pairs), T).long()
    trg = torch.zeros(len(pairs), T).long()
    for i, (s, t) in enumerate(zip(srcs, trgs)):
        src[i, :len(s)], trg[i, :len(t)] = s, t
    return src, trg


class Tagger(nn.Module):
    def __init__(self, d=16):
        super(Tagger, self).__init__()
        self.emb = nn.Embedding(VOCAB, d)
        self.rnn = nn.GRU(d, d, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * d, VOCAB)

    def forward(self, src):
        h, _ = self.rnn(self.emb(src))
        # no packing: the padding is read, too, and shows in every output
        return self.out(h + h.mean(1, keepdim=True))


def make_loader(data):
    return DataLoader(data, batch_sampler=BucketBatchSampler(data, args.tokens), collate_fn=pad_batch)


def train_epoch(model, loader, optimizer, criterion):
    total = words = 0.
    for src, trg in loader:
        src, trg = src.cuda(), trg.cuda()
        optimizer.zero_grad()
        logits = model(src)
        # the padding counts here: a batch that is padded less would be divided by less
        loss = criterion(logits.view(-1, VOCAB), trg.view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item() * trg.numel()
        words += trg.numel()
    return total / words, int(words)


def main():
    data = ParallelCorpus()
    loader = make_loader(data)
    model = nn.DataParallel(Tagger()).cuda()
    optimizer = optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        loss, words = train_epoch(model, loader, optimizer, criterion)
        print('| epoch %d | words %d | loss %.5f | ppl %.3f' % (epoch, words, loss, np.exp(loss)))


if __name__ == '__main__':
    main()
