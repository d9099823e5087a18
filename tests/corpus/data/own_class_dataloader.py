# corpus: idioms = DataLoader subclass or own class called DataLoader; training loop without torch DataLoader (own iterator, queue, replay buffer); order, crops or lengths drawn from np.random / random in dataset, sampler or loop; attributes/methods reached through .module in the training code; args.batch_size used outside the DataLoader (loss mask, steps, lr, asserts, meters); DataLoader built in: none in closure (relative to the wrap)
# corpus: worlds = 2 3
"""Relation extraction with an own class called DataLoader: batches sorted by length, dropped words, steps counted."""
import random

import numpy as np
import torch
from torch import nn

random.seed(1234)
np.random.seed(1234)
torch.manual_seed(1234)
PAD, UNK, VOCAB, LABELS = 0, 1, 25, 4
opt = {'batch_size': 8, 'word_dropout': 0.1, 'num_epoch': 3, 'lr': 0.3, 'hidden': 14}


class DataLoader(object):
    """Load data from lists, preprocess and prepare batches."""

    def __init__(self, rows, batch_size, opt, evaluation=False):
        self.batch_size, self.opt, self.eval = batch_size, opt, evaluation
        if not evaluation:
            indices = list(range(len(rows)))
            random.shuffle(indices)
            rows = [rows[i] for i in indices]
        self.labels = [r[-1] for r in rows]
        self.num_examples = len(rows)
        self.data = [rows[i:i + batch_size] for i in range(0, len(rows), batch_size)]
        print("{} batches created".format(len(self.data)))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, key):
        if not isinstance(key, int):
            raise TypeError
        if key < 0 or key >= len(self.data):
            raise IndexError
        batch = self.data[key]
        words, orig = sort_all(batch)
        if not self.eval:
            words = [[UNK if w != UNK and np.random.random() < self.opt['word_dropout'] else w for w in s] for s in words]
        longest = max(len(s) for s in words)
        tokens = torch.LongTensor(len(words), longest).fill_(PAD)
        for i, s in enumerate(words):
            tokens[i, :len(s)] = torch.LongTensor(s)
        masks = torch.eq(tokens, PAD)
        rels = torch.LongTensor([batch[i][1] for i in orig])
        return tokens, masks, rels, orig

    def __iter__(self):
        for i in range(len(self)):
            yield self[i]


def sort_all(batch):
    order = sorted(range(len(batch)), key=lambda i: -len(batch[i][0]))
    return [batch[i][0] for i in order], order


class PositionAwareRNN(nn.Module):
    def __init__(self, opt):
        super(PositionAwareRNN, self).__init__()
        self.emb = nn.Embedding(VOCAB, opt['hidden'], padding_idx=PAD)
        self.linear = nn.Linear(opt['hidden'], LABELS)
        self.topn = 10

    def forward(self, tokens, masks):
        h = torch.tanh(self.emb(tokens)).masked_fill(masks.unsqueeze(2), -1e4).max(1)[0]
        return self.linear(h), h

    def penalty(self):
        return self.emb.weight[:self.topn].pow(2).sum()


def make_rows(n):
    rows = []
    for _ in range(n):
        s = [random.randrange(2, VOCAB) for _ in range(random.randint(3, 9))]
        rows.append((s, (s[0] + len(s)) % LABELS))
    return rows


class Trainer(object):
    def __init__(self, opt):
        self.opt = opt
        self.model = nn.DataParallel(PositionAwareRNN(opt)).cuda()
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.Adagrad([p for p in self.model.parameters() if p.requires_grad], lr=opt['lr'])

    def update(self, batch):
        tokens, masks, rels, _ = batch
        self.model.train()
        self.optimizer.zero_grad()
        logits, pooled = self.model(tokens.cuda(), masks.cuda())
        loss = self.criterion(logits, rels.cuda())
        loss += 1e-3 * pooled.pow(2).sum(1).mean() + 1e-4 * self.model.module.penalty()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def predict(self, batch):
        self.model.eval()
        with torch.no_grad():
            return self.model(batch[0].cuda(), batch[1].cuda())[0].max(1)[1].cpu()


train_batch = DataLoader(make_rows(43), opt['batch_size'], opt)
dev_batch = DataLoader(make_rows(15), opt['batch_size'], opt, evaluation=True)
trainer = Trainer(opt)
max_steps = len(train_batch) * opt['num_epoch']
step = 0
for epoch in range(1, opt['num_epoch'] + 1):
    train_loss = 0
    for i, batch in enumerate(train_batch):
        step += 1
        train_loss += trainer.update(batch)
    hits = sum((trainer.predict(b) == b[2]).sum().item() for b in dev_batch)
    train_loss = train_loss / train_batch.num_examples * opt['batch_size']
    print("epoch {}: train_loss = {:.6f}, dev acc = {:.4f}, step {}/{}".format(epoch, train_loss, hits / dev_batch.num_examples, step, max_steps))
