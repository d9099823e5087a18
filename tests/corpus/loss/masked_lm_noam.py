# corpus: idioms = sum / none reduction normalised by hand; mean over a data-dependent count - full batch level (after gather); own optimizer / wrapper class (Noam, ScheduledOptim, OpenAIAdam, BertAdam, BinOp, AWP); clip_grad; optimizer created after wrap; raw model kept and used beside the wrapper (optimizer, state_dict, eval, EMA)
# corpus: worlds = 2 3 4
"""Masked language model: loss per token, summed, divided by the number of masked tokens of the batch; Noam schedule."""
import argparse
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class NoamOpt:
    "Optim wrapper that implements rate."
    def __init__(self, model_size, factor, warmup, optimizer):
        self.optimizer = optimizer
        self._step = 0
        self.warmup = warmup
        self.factor = factor
        self.model_size = model_size
        self._rate = 0

    def step(self):
        self._step += 1
        rate = self.rate()
        for p in self.optimizer.param_groups:
            p['lr'] = rate
        self._rate = rate
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad()

    def rate(self, step=None):
        step = step or self._step
        return self.factor * (self.model_size ** (-0.5) * min(step ** (-0.5), step * self.warmup ** (-1.5)))


class TinyBert(nn.Module):
    def __init__(self, vocab, d=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, d, padding_idx=0)
        self.pos = nn.Parameter(torch.randn(1, 12, d) * 0.1)
        self.layer = nn.TransformerEncoderLayer(d, 2, 24, dropout=0.1, batch_first=True)
        self.out = nn.Linear(d, vocab)
        self.out.weight = self.embed.weight      # tied

    def forward(self, ids):
        h = self.embed(ids) + self.pos[:, :ids.size(1)]
        h = self.layer(h, src_key_padding_mask=ids == 0)
        return self.out(h)


def corpus(n, vocab):
    g = torch.Generator().manual_seed(3)
    ids = torch.randint(2, vocab, (n, 10), generator=g)
    lengths = torch.randint(2, 11, (n,), generator=g)
    ids[torch.arange(10)[None, :] >= lengths[:, None]] = 0
    return TensorDataset(ids)


def mask_tokens(ids):
    labels = ids.clone()
    pick = (torch.rand(ids.shape) < 0.3) & (ids != 0)
    labels[~pick] = -1
    masked = ids.clone()
    masked[pick] = 1
    return masked, labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('-b', '--batch_size', type=int, default=14)
    parser.add_argument('-e', '--epochs', type=int, default=3)
    parser.add_argument('--clip', type=float, default=0.5)
    args = parser.parse_args()
    torch.manual_seed(11)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

    bert = TinyBert(vocab=20).to(device)
    model = nn.DataParallel(bert)
    loader = DataLoader(corpus(50, 20), batch_size=args.batch_size, shuffle=True)
    optim = NoamOpt(16, 0.5, 6, torch.optim.Adam(bert.parameters(), lr=0, betas=(0.9, 0.98), eps=1e-9))
    criterion = nn.CrossEntropyLoss(ignore_index=-1, reduction='none')

    for epoch in range(args.epochs):
        model.train()
        total_loss, total_tokens = 0.0, 0
        for i, (ids,) in enumerate(loader):
            masked, labels = mask_tokens(ids)
            masked, labels = masked.to(device), labels.to(device)
            logits = model(masked)
            per_token = criterion(logits.view(-1, logits.size(-1)), labels.view(-1))
            ntokens = (labels != -1).sum().item()
            loss = per_token.sum() / max(ntokens, 1)
            optim.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optim.step()
            total_loss += per_token.sum().item()
            total_tokens += ntokens
            print("Epoch Step: %d Loss: %f Tokens: %d rate %.6f norm %.5f" % (i, loss.item(), ntokens, optim._rate, norm))
        print("epoch", epoch, "ppl %.4f" % math.exp(total_loss / total_tokens))
    torch.save(bert.cpu().state_dict(), 'bert.pt')


if __name__ == '__main__':
    main()
