# corpus: idioms = nn.DataParallel; module level, under if __name__; order, crops or lengths drawn from np.random / random in dataset, sampler or loop; .cuda()/'cuda' without index inside forward(); own flag (args.multi_gpu / parallel / mGPUs ...); dict / list / non-tensor / None / raw samples passed to the wrapped forward; clip_grad; own optimizer / wrapper class (Noam, ScheduledOptim, OpenAIAdam, BertAdam, BinOp, AWP); hasattr(model,'module'); buffer or counter written in forward; DP(...).cuda()
# corpus: worlds = 2 3
"""Sentence VAE: words are dropped by numpy, layers by random, and the noise is made on the CPU, all inside forward."""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class SentenceVAE(nn.Module):
    def __init__(self, vocab=15, h=8, z=4, word_dropout=0.3):
        super(SentenceVAE, self).__init__()
        self.embed = nn.Embedding(vocab, h)
        self.enc = nn.GRU(h, h, batch_first=True)
        self.dec = nn.GRU(h, h, batch_first=True)
        self.mean, self.logv = nn.Linear(h, z), nn.Linear(h, z)
        self.z2h = nn.Linear(z, h)
        self.extra = nn.ModuleList([nn.Linear(h, h) for _ in range(2)])
        self.out = nn.Linear(h, vocab)
        self.word_dropout = word_dropout
        self.register_buffer('k', torch.tensor(0.0))

    def reparameterize(self, mean, logv):
        eps = torch.randn(mean.size()).cuda()
        return eps * torch.exp(0.5 * logv) + mean

    def forward(self, x, lengths=None, anneal=None):
        emb = self.embed(x)
        _, h = self.enc(emb)
        mean, logv = self.mean(h[-1]), self.logv(h[-1])
        z = self.reparameterize(mean, logv) if self.training else mean
        if self.training:
            keep = np.random.rand(*x.size()) >= self.word_dropout
            x = x * torch.from_numpy(keep.astype('int64')).cuda()
        out, _ = self.dec(self.embed(x), torch.tanh(self.z2h(z)).unsqueeze(0).contiguous())
        for layer in self.extra:
            if not self.training or random.random() < 0.7:
                out = out + torch.relu(layer(out))
        self.k += 1
        noise = torch.zeros(out.size(0), 1, 1).uniform_(-0.05, 0.05)
        return F.log_softmax(self.out(out + noise.cuda()), -1), mean, logv, {'k': anneal, 'z': z} if anneal is None else None


def kl_anneal(step, k=0.5, x0=6):
    return float(1 / (1 + np.exp(-k * (step - x0))))


def main(args):
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    text = torch.randint(1, 15, (37, 7), generator=torch.Generator().manual_seed(2))
    model = SentenceVAE()
    if args.mGPUs:
        model = nn.DataParallel(model).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = 0
    for epoch in range(args.epochs):
        order = np.random.permutation(len(text))
        model.train()
        for lo in range(0, len(text), args.batch_size):
            batch = text[order[lo:lo + args.batch_size]].cuda()
            logp, mean, logv, _ = model(batch[:, :-1], lengths=[6] * len(batch), anneal=kl_anneal(step))
            nll = F.nll_loss(logp.reshape(-1, 15), batch[:, 1:].reshape(-1), reduction='sum')
            kl = -0.5 * torch.sum(1 + logv - mean.pow(2) - logv.exp())
            loss = (nll + kl_anneal(step) * kl) / len(batch)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5)
            optimizer.step()
            step += 1
        model.eval()
        with torch.no_grad():
            acc = (model(text[:5].cuda()[:, :-1])[0].argmax(-1).cpu() == text[:5, 1:]).float().mean()
        net = model.module if hasattr(model, 'module') else model
        print('epoch %02d loss %.4f kl %.4f acc %.3f next %.4f %d' % (
            epoch, loss.item(), kl.item(), acc, random.random() + np.random.rand() + torch.rand(1).item(), net.k.item()))


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-b', '--batch_size', type=int, default=8)
    parser.add_argument('-ep', '--epochs', type=int, default=2)
    parser.add_argument('--mGPUs', action='store_true', default=True)
    main(parser.parse_args())
