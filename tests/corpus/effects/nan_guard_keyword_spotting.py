# corpus: idioms = train loop / backward in: same scope (relative to the wrap); DataLoader built in: same scope (relative to the wrap)
# corpus: idioms = torch.nn.DataParallel; module level, bare; rebinds the same name; unconditional; optimizer step skipped on a value of the local loss
# corpus: idioms = text/csv/json log file; clip_grad; collate_fn; shuffle literal True; optimizer created after wrap; makedirs/mkdir; .item(); correct/total counters
# corpus: idioms = sum / none reduction normalised by hand; np.random/random seed; torch.manual_seed; .to(device)
# corpus: worlds = 2 3 4
"""keyword spotting on synthetic filter banks; some utterances are broken (NaN), such batches are skipped"""
import csv
import math
import os
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

random.seed(3)
np.random.seed(3)
torch.manual_seed(3)
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
out_dir = 'exp/kws'
os.makedirs(out_dir, exist_ok=True)


class Utterances(Dataset):
    def __init__(self, n=58):
        rng = np.random.RandomState(11)
        self.feats = [rng.randn(rng.randint(4, 9), 5).astype('float32') for _ in range(n)]
        self.words = rng.randint(0, 3, n)
        self.feats[17][2, 3] = np.nan  # a broken recording
        for i in (5, 30):
            self.feats[i][:] = 0

    def __len__(self):
        return len(self.feats)

    def __getitem__(self, i):
        return torch.from_numpy(self.feats[i]), int(self.words[i])


def pad(batch):
    lengths = torch.tensor([len(f) for f, _ in batch])
    feats = torch.zeros(len(batch), int(lengths.max()), 5)
    for i, (f, _) in enumerate(batch):
        feats[i, :len(f)] = f
    return feats, lengths, torch.tensor([w for _, w in batch])


class KWS(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(5, 12, 3, padding=1)
        self.fc = nn.Linear(12, 3)

    def forward(self, feats, lengths):
        h = torch.tanh(self.conv(feats.transpose(1, 2)))
        mask = torch.arange(h.size(2), device=h.device)[None] < lengths[:, None]
        h = (h * mask[:, None].to(h.dtype)).sum(2) / lengths[:, None].to(h.dtype)
        return self.fc(h)


loader = DataLoader(Utterances(), batch_size=10, shuffle=True, collate_fn=pad)
model = KWS().to(device)
model = torch.nn.DataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss(reduction='sum')

log = open(os.path.join(out_dir, 'train.csv'), 'w', newline='')
writer = csv.writer(log)
writer.writerow(['epoch', 'batch', 'loss', 'norm'])
bad = 0
for epoch in range(3):
    correct, total = 0, 0
    for n, (feats, lengths, words) in enumerate(loader):
        feats, lengths, words = feats.to(device), lengths.to(device), words.to(device)
        logits = model(feats, lengths)
        loss = criterion(logits, words) / words.size(0)
        if math.isnan(loss.item()) or math.isinf(loss.item()):
            print('WARNING: loss is', loss.item(), 'in batch', n, '- skipped')
            bad += 1
            continue
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        if not torch.isfinite(norm):
            print('bad gradient')
            continue
        optimizer.step()
        writer.writerow([epoch, n, '%.6f' % loss.item(), '%.6f' % float(norm)])
        correct += (logits.argmax(1) == words).sum().item()
        total += words.numel()
    print('epoch {} acc {:.3f} on {} words, {} bad batches so far'.format(epoch, correct / max(total, 1), total, bad))
    log.flush()
log.close()
torch.save({'model': model.state_dict(), 'bad': bad}, os.path.join(out_dir, 'last.pt'))
