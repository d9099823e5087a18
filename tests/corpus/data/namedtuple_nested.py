# corpus: idioms = dict / list / non-tensor / None / raw samples passed to the wrapped forward; collate_fn; custom sampler class; sampler=; random_split/subset; dict or list of loaders; mean over a data-dependent count (ignore_index, mask, num_pos, padding) - replica level
# corpus: worlds = 2 3
"""Dialogue state tracking: batches are named tuples with nested lists, strings and None; loaders in a list by domain."""
from collections import namedtuple

import torch
import torch.nn as nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Sampler, Subset, random_split

Turn = namedtuple('Turn', ['tokens', 'lengths', 'slots', 'raw', 'history'])
torch.manual_seed(21)


class Dialogues(Dataset):
    def __init__(self, domain, n):
        self.rows = []
        for i in range(n):
            words = torch.randint(1, 20, (3 + (i * 7) % 5,))
            self.rows.append((domain, words, [int(words.sum()) % 3, int(words[0]) % 2], None if i % 4 else 'yes'))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class ByLength(Sampler):
    """Long ones first, ties by a draw."""

    def __init__(self, data):
        self.data = data

    def __iter__(self):
        draw = torch.rand(len(self.data)).tolist()
        return iter(sorted(range(len(self.data)), key=lambda i: (-len(self.data[i][1]), draw[i])))

    def __len__(self):
        return len(self.data)


def collate(rows):
    longest = max(len(r[1]) for r in rows)
    tokens = torch.stack([nn.functional.pad(r[1], (0, longest - len(r[1]))) for r in rows])
    slots = [torch.tensor([r[2][k] for r in rows]) for k in range(2)]
    return Turn(tokens, torch.tensor([len(r[1]) for r in rows]), slots, [r[0] for r in rows], [r[3] for r in rows])


class Tracker(nn.Module):
    def __init__(self, d=10):
        super().__init__()
        self.emb = nn.Embedding(20, d, padding_idx=0)
        self.mix = nn.Linear(d, d)
        self.heads = nn.ModuleList([nn.Linear(d, 3), nn.Linear(d, 2)])

    def forward(self, turn, extra):
        pooled = self.emb(turn.tokens).sum(1) / turn.tokens.size(1)  # the padding counts
        h = torch.tanh(self.mix(pooled)) / turn.lengths.float().unsqueeze(1) * extra['scale']
        logits = [head(h) for head in self.heads]
        losses = [nn.functional.cross_entropy(l, s) for l, s in zip(logits, turn.slots)]
        return Turn(h, turn.lengths, logits, torch.stack(losses).unsqueeze(0), extra['nothing'])


train, rest = random_split(ConcatDataset([Dialogues('hotel', 23), Dialogues('taxi', 16)]), [29, 10])
loaders = [DataLoader(train, batch_size=7, sampler=ByLength(train), collate_fn=collate),
           DataLoader(Subset(rest, range(9)), 5, shuffle=True, collate_fn=collate)]
model = nn.DataParallel(Tracker()).cuda()
opt = torch.optim.Adam(model.parameters(), lr=0.02)
for epoch in range(3):
    right = count = yes = 0
    domains = ''
    for loader in loaders:
        for turn in loader:
            # the raw texts stay behind: only tensors are split
            out = model(turn._replace(raw=None, history=None), {'scale': 3.0, 'nothing': None})
            loss = out.raw.mean(0).sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += sum((l.argmax(1).cpu() == s).sum().item() for l, s in zip(out.slots, turn.slots))
            count += 2 * len(turn.raw)
            yes += sum(h == 'yes' for h in turn.history)
            domains += turn.raw[0][0]
    print(epoch, 'joint %d/%d' % (right, count), 'yes', yes, domains, 'loss %.5f' % loss.item(), out.history)
