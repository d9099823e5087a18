# corpus: idioms = DataLoader already yields whole batches (batch_size=1 or custom dataset batches); batch size multiplied by the number of GPUs in the script; IterableDataset; order, crops or lengths drawn from np.random / random in dataset, sampler or loop; mean over a data-dependent count (ignore_index, mask, num_pos, padding) - replica level; np.random/random seed
# corpus: worlds = 2 3
"""Language model over token buckets: each item is one GPU's batch already, the loader stacks one for each GPU."""
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

random.seed(6)
torch.manual_seed(6)
NGPU = max(1, torch.cuda.device_count())
VOCAB, PAD, ROWS = 19, 0, 4


def sentence():
    return [random.randrange(1, VOCAB) for _ in range(random.randint(3, 8))]


class Buckets(Dataset):
    """Item i is a batch of ROWS sentences, padded to 8."""

    def __init__(self, n):
        self.items = [[sentence() for _ in range(ROWS)] for _ in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        out = torch.full((ROWS, 8), PAD)
        for r, s in enumerate(self.items[i]):
            start = random.randint(0, 8 - len(s))
            out[r, start:start + len(s)] = torch.tensor(s)
        return out


class Stream(IterableDataset):
    """Yields whole batches, trimmed to a multiple of the number of GPUs."""

    def __init__(self, n):
        self.n = n

    def __iter__(self):
        rows = []
        for _ in range(self.n):
            rows.append(torch.tensor((sentence() + [PAD] * 8)[:8]))
            if len(rows) == random.choice((5, 7, 9)) or len(rows) == 9:
                keep = len(rows) // NGPU * NGPU
                yield torch.stack(rows[:keep])
                rows = rows[keep:]


class LM(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(d, VOCAB)
        self.crit = nn.CrossEntropyLoss(ignore_index=PAD)

    def forward(self, tokens):
        tokens = tokens.view(-1, tokens.size(-1))  # (1, ROWS, 8) of the stacked items, (rows, 8) of the stream
        h, _ = self.rnn(self.emb(tokens[:, :-1]))
        loss = self.crit(self.out(h).flatten(0, 1), tokens[:, 1:].flatten())
        return loss.unsqueeze(0), (tokens != PAD).sum().unsqueeze(0)


model = nn.DataParallel(LM().cuda())
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
loader = DataLoader(Buckets(7 * NGPU + 1), batch_size=NGPU, shuffle=True)
stream = DataLoader(Stream(60), batch_size=1)
for epoch in range(2):
    for name, source in (('buckets', loader), ('stream', stream)):
        total = words = 0
        for tokens in source:
            if name == 'stream':
                tokens = tokens.squeeze(0)
            loss, n = model(tokens.cuda())
            opt.zero_grad()
            loss.mean().backward()
            opt.step()
            total += (loss * n).sum().item()
            words += n.sum().item()
        print('epoch %d %s: %d words, %.5f' % (epoch, name, words, total / words))
