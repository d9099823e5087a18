# corpus: idioms = from torch.nn import DataParallel; function main/train/run; rebinds the same name; device_count() > 1; try/except around step (OOM/KeyboardInterrupt)
# corpus: idioms = try/except around the step swallows errors and continues; training loop without torch DataLoader (own iterator, queue, replay buffer); global statement; torch.save
# corpus: idioms = mean over a data-dependent count (ignore_index, mask, num_pos, padding) - replica level; device_count() used; order, crops or lengths drawn from np.random / random in dataset, sampler or loop
# corpus: worlds = 2 3 4
# Language model on random sentences. Long sentences do not fit into memory; we throw them away as fairseq does.
import random

import torch
import torch.nn as nn
import torch.optim as optim
from torch.nn import DataParallel

PAD = 0
ooms = 0
MAX_TOKENS = 44


class LM(nn.Module):
    def __init__(self, vocab=23, dim=12):
        super(LM, self).__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, src, tgt):
        if (src != PAD).sum() > MAX_TOKENS:
            raise RuntimeError('CUDA out of memory. Tried to allocate %d tokens' % (src != PAD).sum().item())
        hidden, _ = self.rnn(self.emb(src))
        logits = self.out(hidden)
        loss = nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)), tgt.reshape(-1), ignore_index=PAD)
        return loss.unsqueeze(0)


def make_corpus(n):
    rnd = random.Random(5)
    return [[rnd.randint(1, 22) for _ in range(rnd.randint(3, 16))] for _ in range(n)]


def batches(corpus, size):
    order = list(range(len(corpus)))
    random.shuffle(order)
    for i in range(0, len(order), size):
        rows = [corpus[j] for j in order[i:i + size]]
        width = max(map(len, rows))
        yield torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def train_step(model, optimizer, batch):
    global ooms
    model.train()
    optimizer.zero_grad()
    try:
        src, tgt = batch[:, :-1].cuda(), batch[:, 1:].cuda()
        loss = model(src, tgt).mean()
        loss.backward()
        optimizer.step()
    except RuntimeError as e:
        if 'out of memory' not in str(e):
            raise
        ooms += 1
        print('| WARNING: ran out of memory, skipping batch')
        for p in model.parameters():
            if p.grad is not None:
                del p.grad
        if hasattr(torch.cuda, 'empty_cache'):
            torch.cuda.empty_cache()
        return None
    return loss.item()


def main():
    random.seed(1)
    torch.manual_seed(1)
    corpus = make_corpus(50)
    model = LM().cuda()
    if torch.cuda.device_count() > 1:
        print("let's use", torch.cuda.device_count(), 'GPUs')
        model = DataParallel(model)
    optimizer = optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(3):
        losses = []
        for batch in batches(corpus, 8):
            loss = train_step(model, optimizer, batch)
            if loss is not None:
                losses.append(loss)
        print('epoch', epoch, 'loss %.4f' % (sum(losses) / len(losses)), 'of', len(losses), 'batches; ooms', ooms)
    torch.save(model.module.state_dict() if hasattr(model, 'module') else model.state_dict(), 'lm.pt')


main()
