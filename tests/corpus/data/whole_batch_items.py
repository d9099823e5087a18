# corpus: idioms = DataLoader already yields whole batches (batch_size=1 or custom dataset batches); collate_fn; batch dim is not 0 (dim=1), or DataLoader batch is not what DP splits; order, crops or lengths drawn from np.random / random in dataset, sampler or loop; dict / list / non-tensor / None / raw samples passed to the wrapped forward; len(loader.dataset); loader or dataset rebuilt during training
# corpus: worlds = 2 3
"""Speech separation: the data set makes minibatches itself (items are whole batches), the loader only hands on."""
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils import data

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)


class AudioDataset(data.Dataset):
    def __init__(self, n, batch_size, segment=20):
        infos = [(torch.randn(random.randint(12, 40)), i) for i in range(n)]
        infos.sort(key=lambda info: len(info[0]), reverse=True)
        minibatch, start = [], 0
        while start < len(infos):
            minibatch.append(infos[start:start + batch_size])
            start += batch_size
        random.shuffle(minibatch)
        self.minibatch, self.segment = minibatch, segment

    def __getitem__(self, index):
        return self.minibatch[index]

    def __len__(self):
        return len(self.minibatch)


class AudioDataLoader(data.DataLoader):
    """batch_size is 1 here: it is the number of minibatches, not of utterances."""

    def __init__(self, *args, **kwargs):
        super(AudioDataLoader, self).__init__(*args, **kwargs)
        self.collate_fn = _collate_fn


def _collate_fn(batch):
    assert len(batch) == 1
    batch = batch[0]
    longest = max(len(w) for w, _ in batch)
    mixtures, lengths = torch.zeros(len(batch), longest), []
    for i, (w, _) in enumerate(batch):
        mixtures[i, :len(w)] = w
        lengths.append(len(w))
    sources = torch.stack([mixtures * 0.7, mixtures * 0.3], 1)
    return mixtures, torch.tensor(lengths), sources


class TasNet(nn.Module):
    def __init__(self, N=8, C=2):
        super(TasNet, self).__init__()
        self.encoder = nn.Conv1d(1, N, 4, stride=2, bias=False)
        self.mask = nn.Sequential(nn.GroupNorm(1, N), nn.Conv1d(N, N * C, 1), nn.Sigmoid())
        self.decoder = nn.ConvTranspose1d(N, 1, 4, stride=2, bias=False)
        self.N, self.C = N, C

    def forward(self, mixture):
        w = torch.relu(self.encoder(mixture.unsqueeze(1)))
        m = self.mask(w).view(-1, self.C, self.N, w.size(-1))
        out = self.decoder((m * w.unsqueeze(1)).flatten(0, 1)).view(-1, self.C, 2 * w.size(-1) + 2)
        return nn.functional.pad(out, (0, mixture.size(1) - out.size(-1)))


def cal_loss(source, estimate, lengths):
    mask = (torch.arange(source.size(-1), device=source.device)[None] < lengths[:, None]).float().unsqueeze(1)
    err = ((source - estimate) * mask).pow(2).sum((1, 2)) / lengths
    return (10 * torch.log10(err + 1e-8)).mean()


tr_dataset = AudioDataset(26, 5)
cv_dataset = AudioDataset(9, 4)
tr_loader = AudioDataLoader(tr_dataset, batch_size=1, shuffle=True, num_workers=0)
cv_loader = data.DataLoader(cv_dataset, batch_size=None, collate_fn=lambda item: _collate_fn([item]))
model = nn.DataParallel(TasNet())
model.cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(3):
    for training, loader in ((True, tr_loader), (False, cv_loader)):
        model.train(training)
        total = 0
        for i, (mixture, lengths, source) in enumerate(loader):
            mixture, lengths, source = mixture.cuda(), lengths.cuda(), source.cuda()
            estimate = model(mixture)
            loss = cal_loss(source, estimate, lengths)
            if training:
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 5)
                optimizer.step()
            total += loss.item()
        print('Epoch {} | {} | {} minibatches | Average Loss {:.5f}'.format(
            epoch + 1, 'train' if training else 'cross valid', len(loader.dataset), total / (i + 1)))
    tr_dataset = AudioDataset(26, 5)
    tr_loader = AudioDataLoader(tr_dataset, batch_size=1, shuffle=True)
